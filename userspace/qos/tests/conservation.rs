// SPDX-License-Identifier: GPL-2.0-only
//! No token is made or lost: random schedules, on one thread and on several.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use proptest::prelude::*;
use qos::{Class, Control, DeviceModel, Entry, Nanos, Scheduler, Slo, TenantId, Tokens};

const THREADS: usize = 3;

/// What the test says happens next.
#[derive(Clone, Debug)]
enum Step {
    /// A request of a tenant on a thread.
    Submit {
        thread: usize,
        tenant: usize,
        cost: Tokens,
    },
    /// Time passes.
    Pass {
        nanos: Nanos,
    },
    Run {
        thread: usize,
        budget: usize,
    },
    Idle {
        thread: usize,
    },
    Cancel {
        thread: usize,
        tenant: usize,
    },
    Set {
        tenant: usize,
        class: Class,
    },
    /// A tenant goes and another comes.
    Replace {
        tenant: usize,
        class: Class,
    },
}

fn class() -> impl Strategy<Value = Class> {
    let critical = (
        1_u32..60_000,
        0_u8..=100,
        prop_oneof![Just(500_u32), 500_u32..4000],
    );
    prop_oneof![
        (1_u32..10_000).prop_map(|weight| Class::BestEffort { weight }),
        critical.prop_map(|(iops, read_pct, p95_us)| Class::LatencyCritical(Slo {
            p95_us,
            iops,
            read_pct,
            block: 4096
        })),
    ]
}

fn step(tenants: usize, changes: bool) -> impl Strategy<Value = Step> {
    let thread = 0..THREADS;
    let tenant = 0..tenants;
    let cost = prop_oneof![4 => Just(100_i64), 2 => Just(1000_i64), 1 => 1_i64..300_000];
    let usual = prop_oneof![
        8 => (thread.clone(), tenant.clone(), cost)
            .prop_map(|(thread, tenant, cost)| Step::Submit { thread, tenant, cost }),
        6 => prop_oneof![8 => 0_u64..20_000, 4 => 0_u64..1_000_000, 1 => 0_u64..3_000_000_000]
            .prop_map(|nanos| Step::Pass { nanos }),
        6 => (thread.clone(), 0_usize..20).prop_map(|(thread, budget)| Step::Run { thread, budget }),
        1 => thread.clone().prop_map(|thread| Step::Idle { thread }),
        1 => (thread, tenant.clone()).prop_map(|(thread, tenant)| Step::Cancel { thread, tenant }),
    ];
    if !changes {
        return usual.boxed();
    }
    prop_oneof![
        20 => usual,
        1 => (tenant.clone(), class()).prop_map(|(tenant, class)| Step::Set { tenant, class }),
        1 => (tenant, class()).prop_map(|(tenant, class)| Step::Replace { tenant, class }),
    ]
    .boxed()
}

struct World {
    control: Control,
    threads: Vec<Scheduler>,
    ids: Vec<TenantId>,
    now: Nanos,
    /// Tokens of everything that ran.
    spent: Tokens,
    serial: u32,
    names: u32,
    waiting: Vec<(usize, TenantId, u32, Tokens)>,
}

impl World {
    fn new(classes: &[Class]) -> World {
        let model = DeviceModel::preset("million").unwrap();
        let mut control = Control::new(model, classes.len() + 2).unwrap();
        let mut ids = Vec::new();
        for (index, class) in classes.iter().enumerate() {
            let name = format!("t{index}");
            let id = control
                .add(&name, *class)
                .or_else(|_| control.add(&name, Class::BestEffort { weight: 100 }));
            // Not even best effort fits beside promises of a read-only device.
            ids.extend(id);
        }
        let threads = (0..THREADS)
            .map(|_| Scheduler::new(control.shared()))
            .collect();
        World {
            control,
            threads,
            ids,
            now: 1_000_000_000_000,
            spent: 0,
            serial: 0,
            names: 1000,
            waiting: Vec::new(),
        }
    }

    fn run(&mut self, thread: usize, budget: usize) {
        let (waiting, spent) = (&mut self.waiting, &mut self.spent);
        let scheduler = &mut self.threads[thread];
        scheduler.run(self.now, budget, &mut |tenant, handle| {
            let place = waiting
                .iter()
                .position(|&(t, id, h, _)| (t, id, h) == (thread, tenant, handle));
            *spent += waiting.swap_remove(place.expect("it waits")).3;
        });
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Submit {
                thread,
                tenant,
                cost,
            } => {
                let Some(&id) = self.ids.get(tenant) else {
                    return;
                };
                if self.threads[thread].admit(id, cost, self.now) {
                    self.spent += cost;
                } else {
                    self.serial += 1;
                    self.threads[thread].enqueue(
                        id,
                        Entry {
                            handle: self.serial,
                            cost,
                        },
                    );
                    self.waiting.push((thread, id, self.serial, cost));
                }
            }
            Step::Pass { nanos } => self.now += nanos,
            Step::Run { thread, budget } => self.run(thread, budget),
            Step::Idle { thread } => self.threads[thread].idle(self.now),
            Step::Cancel { thread, tenant } => {
                let Some(&id) = self.ids.get(tenant) else {
                    return;
                };
                let place = self
                    .waiting
                    .iter()
                    .position(|&(t, i, _, _)| (t, i) == (thread, id));
                if let Some(place) = place {
                    let (_, _, handle, _) = self.waiting.swap_remove(place);
                    assert!(self.threads[thread].cancel(id, handle));
                    assert!(!self.threads[thread].cancel(id, handle));
                }
            }
            Step::Set { tenant, class } => {
                if let Some(&id) = self.ids.get(tenant) {
                    let _ = self.control.set(id, class);
                }
            }
            Step::Replace { tenant, class } => {
                let Some(&id) = self.ids.get(tenant) else {
                    return;
                };
                self.control.remove(id);
                self.names += 1;
                match self.control.add(&self.names.to_string(), class) {
                    Ok(id) => self.ids[tenant] = id,
                    Err(_) => drop(self.ids.remove(tenant)),
                }
            }
        }
    }

    /// What was earned, less what was spent, is held or expired. Whole tokens
    /// are told, so each figure may be one too small.
    fn check(&self) {
        let books = self.control.shared().books();
        let all = (0..self.control.shared().capacity() as u32).map(TenantId);
        let at_hand: Tokens = all
            .map(|id| self.threads.iter().map(|s| s.at_hand(id)).sum::<Tokens>())
            .sum();
        let rest = books.earned - self.spent - at_hand - books.held - books.expired;
        let rounding = 3 + (self.control.shared().capacity() * THREADS) as Tokens;
        assert!(
            rest.abs() <= rounding,
            "{rest} of {books:?}, spent {}, at hand {at_hand}",
            self.spent
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever happens, tenants that come, go and change included.
    #[test]
    fn tokens_are_neither_made_nor_lost(
        classes in prop::collection::vec(class(), 1..6),
        steps in prop::collection::vec(step(6, true), 1..400),
    ) {
        let mut world = World::new(&classes);
        for step in &steps {
            world.step(step);
            world.check();
        }
    }

    /// The device's rate is earned, by somebody: not more, not less.
    #[test]
    fn the_rate_is_earned(
        classes in prop::collection::vec(class(), 1..6),
        steps in prop::collection::vec(step(6, false), 1..400),
    ) {
        let mut world = World::new(&classes);
        // The clock begins with the first time that is told.
        for thread in 0..THREADS {
            world.threads[thread].idle(world.now);
        }
        let begin = world.now;
        for step in &steps {
            world.step(step);
        }
        for thread in 0..THREADS {
            world.threads[thread].idle(world.now);
        }
        let elapsed = u128::from(world.now - begin);
        let due = (u128::from(world.control.device_rate()) * elapsed / 1_000_000_000) as i64;
        let earned = world.control.shared().books().earned;
        // A nanosecond at a settlement, hence at most so many tokens per step and tenant.
        let slack = 1 + (steps.len() * 10) as i64;
        prop_assert!(earned <= due + 1, "{earned} of {due}");
        prop_assert!(earned >= due - slack, "{earned} of {due}");
    }
}

/// Threads at full speed over the same tenants, whose terms change meanwhile.
#[test]
fn threads_make_and_lose_nothing() {
    let mut control = Control::new(DeviceModel::preset("million").unwrap(), 8).unwrap();
    let critical = |iops| {
        Class::LatencyCritical(Slo {
            p95_us: 500,
            iops,
            read_pct: 100,
            block: 4096,
        })
    };
    let mut ids = vec![
        control.add("a", critical(50_000)).unwrap(),
        control.add("b", critical(20_000)).unwrap(),
    ];
    for weight in [1, 100, 700] {
        ids.push(
            control
                .add(&format!("w{weight}"), Class::BestEffort { weight })
                .unwrap(),
        );
    }
    let shared = control.shared();
    let (spent, at_hand) = (AtomicI64::new(0), AtomicI64::new(0));
    let clock = std::sync::atomic::AtomicU64::new(1_000_000);
    let end = 200_000_000;
    thread::scope(|scope| {
        for seed in 0..4_u64 {
            let (shared, ids, clock, spent, at_hand) =
                (shared.clone(), &ids, &clock, &spent, &at_hand);
            scope.spawn(move || {
                let mut scheduler = Scheduler::new(shared);
                let mut random = seed * 2 + 1;
                let mut mine = 0;
                loop {
                    // One clock, as CLOCK_MONOTONIC is, that each thread moves.
                    let now = clock.fetch_add(700, Ordering::Relaxed);
                    if now > end {
                        break;
                    }
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let id = ids[(random >> 33) as usize % ids.len()];
                    let cost = if random >> 60 == 0 { 1000 } else { 100 };
                    // The handle is the cost.
                    if scheduler.admit(id, cost, now) {
                        mine += cost;
                    } else if scheduler.waiting(id) < 32 {
                        scheduler.enqueue(
                            id,
                            Entry {
                                handle: cost as u32,
                                cost,
                            },
                        );
                    }
                    if (random >> 40) & 63 == 0 {
                        scheduler.idle(now);
                    }
                    scheduler.run(now, 16, &mut |_, handle| mine += i64::from(handle));
                }
                scheduler.idle(end + 1);
                let left: Tokens = ids.iter().map(|&id| scheduler.at_hand(id)).sum();
                spent.fetch_add(mine, Ordering::Relaxed);
                at_hand.fetch_add(left, Ordering::Relaxed);
            });
        }
        for round in 0..200 {
            control
                .set(ids[0], critical(30_000 + round % 7 * 1000))
                .unwrap();
            control
                .set(
                    ids[2],
                    Class::BestEffort {
                        weight: 1 + round % 50,
                    },
                )
                .unwrap();
            thread::yield_now();
        }
    });
    let books = shared.books();
    let rest = books.earned
        - spent.load(Ordering::Relaxed)
        - at_hand.load(Ordering::Relaxed)
        - books.held
        - books.expired;
    assert!(rest.abs() <= 8, "{rest} of {books:?}");
    let due = 36_000_000 / 1000 * (end / 1_000_000) as i64;
    assert!(books.earned <= due + 1000, "{} of {due}", books.earned);
    assert!(books.earned >= due * 98 / 100, "{} of {due}", books.earned);
}
