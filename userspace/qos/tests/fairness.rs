// SPDX-License-Identifier: GPL-2.0-only
//! Who gets what, in virtual time.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod common;

use common::{Greedy, MILLISECOND, SECOND, Server, best_effort, critical, million, near};
use proptest::prelude::*;
use qos::{Entry, TenantId};

/// Tokens a second of the model at 500 µs, mixed.
const DEVICE: i64 = 36_000_000;

#[test]
fn critical_tenants_get_their_rate_whatever_others_do() {
    let mut control = million(8);
    let modest = control.add("modest", critical(500, 50_000, 100)).unwrap();
    let greedy = control.add("greedy", critical(500, 100_000, 100)).unwrap();
    let writer = control.add("writer", critical(1000, 10_000, 0)).unwrap();
    let others: Vec<TenantId> = (1..4)
        .map(|n| {
            control
                .add(&format!("be{n}"), best_effort(n * 1000))
                .unwrap()
        })
        .collect();
    let mut server = Server::new(control, 2);
    let mut all = vec![
        Greedy::new(modest, 100),
        Greedy::new(greedy, 100),
        Greedy::new(writer, 1000),
    ];
    all.extend(others.iter().map(|&id| Greedy {
        threads: vec![0, 1],
        ..Greedy::new(id, 1000)
    }));
    server.run(&mut all, SECOND);
    for (index, promised) in [5_000_000, 10_000_000, 10_000_000].into_iter().enumerate() {
        let got = all[index].spent;
        assert!(
            got >= promised * 999 / 1000,
            "tenant {index} got {got} of {promised}"
        );
        // With best effort waiting it gets no more, but for its headroom and
        // what it may borrow.
        assert!(
            got <= promised * 107 / 100,
            "tenant {index} got {got} of {promised}"
        );
    }
    let total: i64 = all.iter().map(|greedy| greedy.spent).sum();
    assert!(near(total, DEVICE, 1), "{total}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever their weights, sizes and threads.
    #[test]
    fn best_effort_shares_by_weight(
        weights in prop::collection::vec(1_u32..20, 2..5),
        costs in prop::collection::vec(prop_oneof![Just(100_i64), Just(1000), Just(3200)], 5),
        spread in prop::collection::vec(0_usize..3, 5),
        promised in prop_oneof![Just(0_u32), Just(100_000)],
    ) {
        let mut control = million(8);
        if promised > 0 {
            control.add("critical", critical(500, promised, 100)).unwrap();
        }
        let mut all = Vec::new();
        for (index, weight) in weights.iter().enumerate() {
            let id = control.add(&index.to_string(), best_effort(*weight * 100)).unwrap();
            let threads = [vec![0], vec![1], vec![0, 1]][spread[index]].clone();
            all.push(Greedy { threads, ..Greedy::new(id, costs[index]) });
        }
        let mut server = Server::new(control, 2);
        server.run(&mut all, 200 * MILLISECOND);
        let total: i64 = all.iter().map(|greedy| greedy.spent).sum();
        let rate = if promised > 0 { DEVICE } else { 100_000_000 };
        prop_assert!(near(total, rate / 5, 2), "{total} of {}", rate / 5);
        let sum: i64 = weights.iter().map(|weight| i64::from(*weight)).sum();
        for (greedy, weight) in all.iter().zip(&weights) {
            let due = total * i64::from(*weight) / sum;
            prop_assert!(near(greedy.spent, due, 3), "{} of {due}, weights {weights:?}", greedy.spent);
        }
    }
}

#[test]
fn what_nobody_uses_is_for_best_effort() {
    let mut control = million(8);
    let critical_one = control.add("half", critical(500, 100_000, 100)).unwrap();
    control.add("absent", critical(500, 100_000, 100)).unwrap();
    let one = control.add("one", best_effort(100)).unwrap();
    control.add("none", best_effort(10_000)).unwrap();
    let mut server = Server::new(control, 1);
    let half = Greedy {
        limit: Some(5_000_000),
        ..Greedy::new(critical_one, 100)
    };
    let mut all = [half, Greedy::new(one, 100)];
    server.run(&mut all, SECOND);
    assert!(near(all[0].spent, 5_000_000, 1), "{}", all[0].spent);
    assert!(
        near(all[1].spent, DEVICE - 5_000_000, 1),
        "{}",
        all[1].spent
    );
}

/// A best-effort tenant that wants less than its share leaves the rest to others.
#[test]
fn modest_best_effort_is_not_made_to_wait_nor_to_waste() {
    let mut control = million(8);
    control.add("absent", critical(500, 1000, 100)).unwrap();
    let modest = control.add("modest", best_effort(100)).unwrap();
    let greedy = control.add("greedy", best_effort(100)).unwrap();
    let mut server = Server::new(control, 2);
    let modest = Greedy {
        limit: Some(4_000_000),
        threads: vec![1],
        ..Greedy::new(modest, 100)
    };
    let mut all = [modest, Greedy::new(greedy, 1000)];
    server.run(&mut all, SECOND);
    assert!(near(all[0].spent, 4_000_000, 1), "{}", all[0].spent);
    assert!(
        near(all[1].spent, DEVICE - 4_000_000, 2),
        "{}",
        all[1].spent
    );
}

#[test]
fn critical_tenants_may_use_what_would_expire() {
    let mut control = million(2);
    let one = control.add("one", critical(500, 50_000, 50)).unwrap();
    let mut server = Server::new(control, 1);
    let mut all = [Greedy::new(one, 100)];
    server.run(&mut all, SECOND / 4);
    assert!(near(all[0].spent, DEVICE / 4, 1), "{}", all[0].spent);
}

#[test]
fn nobody_bursts_after_idling() {
    let mut control = million(8);
    let sleeper = control.add("sleeper", best_effort(100)).unwrap();
    let steady = control.add("steady", best_effort(100)).unwrap();
    let owner = control.add("owner", critical(500, 100_000, 100)).unwrap();
    let mut server = Server::new(control, 1);
    let mut all = [Greedy::new(sleeper, 100), Greedy::new(steady, 100)];
    server.run(&mut all[1..], SECOND);
    // Both compete from here on; the sleeper has no more than its share.
    let before = all[1].spent;
    server.run(&mut all, 2 * MILLISECOND);
    let (slept, kept) = (all[0].spent, all[1].spent - before);
    assert!(near(slept, kept, 3), "{slept} against {kept}");

    // The latency-critical one, too: what it may save, what it may borrow and a millisecond.
    let mut with_rivals = Vec::from(all);
    with_rivals.push(Greedy {
        depth: 100_000,
        ..Greedy::new(owner, 100)
    });
    server.run(&mut with_rivals, MILLISECOND);
    let got = with_rivals[2].spent;
    let saved = 10_000_000 * 150 / 1_000_000;
    let borrowed = 10_000_000 * 500 / 1_000_000 + 3200;
    assert!(got <= 10_500 + saved + borrowed + 200, "{got}");
}

#[test]
fn an_idle_device_gathers_little() {
    let mut control = million(8);
    control.add("absent", critical(500, 1000, 100)).unwrap();
    let one = control.add("one", best_effort(100)).unwrap();
    let mut server = Server::new(control, 1);
    server.rest(3600 * SECOND);
    let mut all = [Greedy {
        depth: 1_000_000,
        ..Greedy::new(one, 100)
    }];
    server.run(&mut all, common::TICK);
    // 300 µs of the device, and a request.
    let most = DEVICE * 300 / 1_000_000 + 200;
    assert!(all[0].spent <= most, "{} of {most}", all[0].spent);
    assert!(all[0].spent >= most * 9 / 10, "{} of {most}", all[0].spent);
}

#[test]
fn nobody_starves() {
    let mut control = million(8);
    let small = control.add("small", best_effort(1)).unwrap();
    let large = control.add("large", best_effort(10_000)).unwrap();
    // Nearly all that may be promised.
    let owner = control.add("owner", critical(500, 339_000, 100)).unwrap();
    let mut server = Server::new(control, 1);
    // A MiB written costs 256,000 tokens, many times what an account may hold.
    let mut all = [
        Greedy::new(owner, 100),
        Greedy::new(small, 100),
        Greedy::new(large, 256_000),
    ];
    server.run(&mut all, 2 * SECOND);
    assert!(near(all[0].spent, 71_200_000, 1), "{}", all[0].spent);
    // 400,000 tokens a second are for both.
    assert!(all[1].spent >= 100, "{}", all[1].spent);
    assert!(near(all[2].spent, 2 * 400_000, 40), "{}", all[2].spent);
}

#[test]
fn a_thousand_registered_tenants_cost_nothing() {
    let mut control = million(1002);
    let ids: Vec<TenantId> = (0..1000)
        .map(|n| {
            let class = if n % 2 == 0 {
                best_effort(1 + n)
            } else {
                critical(500 + n, 100, 90)
            };
            control.add(&n.to_string(), class).unwrap()
        })
        .collect();
    let mut server = Server::new(control, 1);
    let shared = server.control.shared();
    assert_eq!(shared.active(), 0);
    let mut all = [Greedy::new(ids[0], 100), Greedy::new(ids[1], 100)];
    server.run(&mut all, 100 * MILLISECOND);
    assert_eq!(shared.active(), 2);
    let total = all[0].spent + all[1].spent;
    let rate = i64::try_from(server.control.device_rate()).unwrap();
    assert!(near(total, rate / 10, 1), "{total} of {rate}");
    // Nobody who did nothing has anything.
    let others = shared
        .snapshot()
        .into_iter()
        .filter(|tokens| tokens.tenant > 1);
    assert!(
        others
            .clone()
            .all(|tokens| tokens.credit == 0 && tokens.earned == 0)
    );
    assert_eq!(others.count(), 998);
    // When they have finished they are as quiet as the others.
    let scheduler = &mut server.threads[0];
    while scheduler.waiting(ids[0]) + scheduler.waiting(ids[1]) > 0 {
        server.now += MILLISECOND;
        scheduler.run(server.now, 1000, &mut |_, _| ());
    }
    for _ in 0..100 {
        server.now += MILLISECOND;
        scheduler.run(server.now, 1000, &mut |_, _| ());
    }
    assert_eq!(shared.active(), 0);
    assert_eq!(scheduler.next_wakeup(server.now), None);
}

#[test]
fn a_changed_promise_holds_at_once() {
    let mut control = million(8);
    let id = control.add("one", critical(500, 20_000, 100)).unwrap();
    let rival = control.add("rival", best_effort(100)).unwrap();
    let mut server = Server::new(control, 1);
    let mut all = [Greedy::new(id, 100), Greedy::new(rival, 100)];
    server.run(&mut all, 100 * MILLISECOND);
    for iops in [80_000, 10_000, 150_000] {
        server.control.set(id, critical(500, iops, 100)).unwrap();
        let (before, rival) = (all[0].spent, all[1].spent);
        server.run(&mut all, 100 * MILLISECOND);
        let (got, due) = (all[0].spent - before, i64::from(iops) * 105 / 10);
        // What it may borrow changes along: 500 µs of its rate and 32 requests.
        let borrowed = 150_000 * 100 / 2000 + 3200;
        assert!((got - due).abs() <= borrowed + due / 100, "{got} of {due}");
        let left = DEVICE / 10 - due;
        assert!((all[1].spent - rival - left).abs() <= borrowed + left / 100);
    }
    // It becomes best effort with its requests waiting, and critical again.
    server.control.set(id, best_effort(100)).unwrap();
    let (before, rival) = (all[0].spent, all[1].spent);
    server.run(&mut all, 100 * MILLISECOND);
    assert!(near(all[0].spent - before, all[1].spent - rival, 10));
    server.control.set(id, critical(500, 50_000, 100)).unwrap();
    let before = all[0].spent;
    server.run(&mut all, 100 * MILLISECOND);
    assert!(
        (all[0].spent - before - 525_000).abs() < 20_000,
        "{}",
        all[0].spent - before
    );
}

#[test]
fn the_wakeup_is_when_something_can_run() {
    let mut control = million(4);
    let slow = control.add("slow", critical(500, 1000, 100)).unwrap();
    let rival = control.add("rival", best_effort(100)).unwrap();
    let mut server = Server::new(control, 1);
    let scheduler = &mut server.threads[0];
    assert_eq!(scheduler.next_wakeup(server.now), None);
    // The rival waits for long, so that the slow one gets nothing from the bucket.
    scheduler.enqueue(
        rival,
        Entry {
            handle: 0,
            cost: 100_000_000,
        },
    );
    scheduler.enqueue(
        rival,
        Entry {
            handle: 1,
            cost: 100,
        },
    );
    let mut ran = Vec::new();
    scheduler.run(server.now + 1000, 10, &mut |id, handle| {
        ran.push((id, handle))
    });
    scheduler.run(server.now + 2000, 10, &mut |id, handle| {
        ran.push((id, handle))
    });
    assert_eq!(ran, [(rival, 0)]);
    server.now += 3000;
    let mut served = 0;
    for handle in 0..100 {
        if !scheduler.admit(slow, 100, server.now) {
            scheduler.enqueue(slow, Entry { handle, cost: 100 });
            served += 1;
        }
    }
    scheduler.run(server.now, 1000, &mut |_, _| served -= 1);
    for _ in 0..served {
        let at = scheduler.next_wakeup(server.now).unwrap();
        assert!(
            at > server.now && at - server.now <= 1_010_000,
            "{}",
            at - server.now
        );
        let mut count = 0;
        scheduler.run(at, 1000, &mut |id, _| {
            assert_eq!(id, slow);
            count += 1;
        });
        assert_eq!(count, 1);
        server.now = at;
    }
}

/// Random arrivals at just the promised rate, beside best effort that takes all it gets.
#[test]
fn random_arrivals_seldom_wait_for_tokens() {
    for (iops, read_pct) in [(1_000, 100), (10_000, 100), (10_000, 70), (100_000, 100)] {
        let mut control = million(4);
        let id = control.add("one", critical(500, iops, read_pct)).unwrap();
        let rival = control.add("rival", best_effort(100)).unwrap();
        let mut server = Server::new(control, 1);
        let scheduler = &mut server.threads[0];
        scheduler.enqueue(
            rival,
            Entry {
                handle: 0,
                cost: 1_000_000_000_000,
            },
        );
        scheduler.enqueue(
            rival,
            Entry {
                handle: 0,
                cost: 100,
            },
        );
        for _ in 0..2 {
            server.now += 10_000;
            scheduler.run(server.now, 10, &mut |_, _| ());
        }
        let (mut random, mut waited, arrivals) = (1_u64, 0, 50_000);
        for _ in 0..arrivals {
            let mut draw = || {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (random >> 11) as f64 / (1_u64 << 53) as f64
            };
            let gap = (-(1.0 - draw()).ln() / f64::from(iops) * 1e9) as u64;
            let cost = if draw() * 100.0 < f64::from(read_pct) {
                100
            } else {
                1000
            };
            // A thread sleeps while there is nothing to do.
            let arrival = server.now + gap;
            while let Some(at) = scheduler.next_wakeup(server.now).filter(|&at| at < arrival) {
                server.now = at.max(server.now + 1);
                scheduler.run(server.now, 10, &mut |_, _| ());
            }
            server.now = arrival;
            if !scheduler.admit(id, cost, server.now) {
                scheduler.enqueue(id, Entry { handle: 1, cost });
                waited += 1;
            }
            scheduler.run(server.now, 10, &mut |_, _| ());
        }
        assert!(
            waited * 100 <= arrivals * 6,
            "{waited} of {arrivals} at {iops} IOPS, {read_pct} % reads"
        );
    }
}

#[test]
fn requests_of_a_tenant_keep_their_order() {
    let mut control = million(4);
    let id = control.add("one", best_effort(100)).unwrap();
    let mut server = Server::new(control, 1);
    let scheduler = &mut server.threads[0];
    server.now += MILLISECOND;
    let mut admitted = 0;
    while scheduler.admit(id, 1000, server.now) {
        admitted += 1;
    }
    assert!(admitted > 0);
    for handle in 0..8 {
        // A small one doesn't overtake the large ones that wait.
        assert!(!scheduler.admit(id, 1, server.now));
        scheduler.enqueue(id, Entry { handle, cost: 1000 });
    }
    assert!(scheduler.cancel(id, 3));
    let mut order = Vec::new();
    for _ in 0..100 {
        server.now += 10_000;
        scheduler.run(server.now, 2, &mut |_, handle| order.push(handle));
    }
    assert_eq!(order, [0, 1, 2, 4, 5, 6, 7]);
}
