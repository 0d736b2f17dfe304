// SPDX-License-Identifier: GPL-2.0-only
//! Admission, changes, feedback, explanations.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod common;

use common::{MILLISECOND, SECOND, best_effort, critical, million};
use proptest::prelude::*;
use qos::{Advice, Class, Entry, Op, Refusal, Scheduler, TenantId};

#[test]
fn a_refusal_says_what_would_fit() {
    let mut control = million(8);
    control.add("first", critical(500, 120_000, 100)).unwrap();
    control.add("rest", best_effort(100)).unwrap();
    let refusal = control
        .add("second", critical(500, 300_000, 80))
        .unwrap_err();
    let Refusal::TooMuch {
        fits_iops,
        fits_p95_us,
        ..
    } = refusal.clone()
    else {
        panic!("{refusal:?}")
    };
    assert_eq!(
        refusal.to_string(),
        "tenant \"second\": all promises together would need 100.8 M tokens/s, and the device has 35.6 M \
         for them at a p95 of 500 µs; 78367 IOPS would fit"
    );
    assert_eq!(fits_p95_us, None);
    // Not one more fits, and that many do.
    assert!(
        control
            .add("second", critical(500, fits_iops + 1, 80))
            .is_err()
    );
    let id = control.add("second", critical(500, fits_iops, 80)).unwrap();
    // Nothing is left for a third.
    let refusal = control.add("third", critical(500, 1000, 0)).unwrap_err();
    assert!(
        refusal
            .to_string()
            .ends_with("no such tenant fits, a best-effort one does"),
        "{refusal}"
    );
    control.remove(id);
    control.add("third", critical(500, 1000, 100)).unwrap();
}

#[test]
fn a_looser_latency_may_fit() {
    let mut control = million(8);
    control.add("first", critical(2000, 400_000, 100)).unwrap();
    control.add("rest", best_effort(1)).unwrap();
    // 47 M tokens/s in all: the device bears that at 919 µs, not at 500.
    let refusal = control
        .add("second", critical(500, 50_000, 100))
        .unwrap_err();
    let Refusal::TooMuch {
        fits_iops: 0,
        fits_p95_us: Some(p95),
        ..
    } = refusal
    else {
        panic!("{refusal}")
    };
    assert!(
        refusal
            .to_string()
            .ends_with(&format!("; a p95 of {p95} µs would fit")),
        "{refusal}"
    );
    assert!(
        control
            .add("second", critical(p95 - 1, 50_000, 100))
            .is_err()
    );
    control.add("second", critical(p95, 50_000, 100)).unwrap();
}

#[test]
fn what_is_wrong_is_named() {
    let mut control = million(2);
    for (class, text) in [
        (critical(499, 1, 100), "ask for 500 µs or more"),
        (critical(500, 0, 100), "IOPS is 0"),
        (
            critical(0, 1, 100),
            "p95 in µs is 0; it is between 1 and 1000000",
        ),
        (critical(500, 1, 101), "read percentage is 101"),
        (best_effort(0), "weight is 0; it is between 1 and 10000"),
        (best_effort(10_001), "weight is 10001"),
    ] {
        let refusal = control.add("x", class).unwrap_err().to_string();
        assert!(refusal.contains(text), "{refusal}");
    }
    // Refused tenants leave nothing behind.
    let x = control.add("x", best_effort(1)).unwrap();
    assert_eq!(
        control.add("x", best_effort(1)).unwrap_err().to_string(),
        "there is a tenant \"x\" already"
    );
    control.add("y", best_effort(1)).unwrap();
    let full = control.add("z", best_effort(1)).unwrap_err().to_string();
    assert!(full.contains("2 tenants"), "{full}");
    assert!(
        control
            .set(TenantId(7), best_effort(1))
            .unwrap_err()
            .to_string()
            .contains("number 7")
    );
    assert!(control.set(x, critical(500, 1_000_000, 100)).is_err());
    assert_eq!(control.tenant(x).unwrap().class, best_effort(1));
}

#[test]
fn writes_end_a_read_only_device() {
    let mut control = million(4);
    let first = control.add("first", critical(500, 700_000, 100)).unwrap();
    assert_eq!(control.device_rate(), 85_000_000);
    for class in [best_effort(100), critical(3000, 1, 99)] {
        let refusal = control.add("writer", class).unwrap_err();
        assert!(matches!(refusal, Refusal::EndsReadOnly { .. }), "{refusal}");
        assert!(refusal.to_string().contains("may write"), "{refusal}");
    }
    assert!(control.set(first, critical(500, 700_000, 99)).is_err());
    control.set(first, critical(500, 300_000, 100)).unwrap();
    control.add("writer", best_effort(100)).unwrap();
    assert_eq!(control.device_rate(), 36_000_000);
}

#[test]
fn reads_may_cost_less_while_nobody_writes() {
    let model = qos::DeviceModel {
        read_only_read: 50,
        ..qos::DeviceModel::preset("million").unwrap()
    };
    let mut control = qos::Control::new(model, 4).unwrap();
    let shared = control.shared();
    assert_eq!(shared.cost(Op::Read, 8192), 200);
    let id = control
        .add("reader", critical(500, 1_600_000, 100))
        .unwrap();
    assert_eq!(
        (shared.cost(Op::Read, 4096), shared.cost(Op::Read, 8192)),
        (50, 100)
    );
    assert_eq!(control.explain(id).unwrap().rate, 84_000_000);
    control.set(id, critical(500, 100_000, 100)).unwrap();
    control.add("writer", best_effort(1)).unwrap();
    assert_eq!(
        (shared.cost(Op::Read, 4096), shared.cost(Op::Write, 4096)),
        (100, 1000)
    );
    assert_eq!(control.explain(id).unwrap().rate, 10_500_000);
}

#[test]
fn an_index_is_used_again_when_nobody_holds_it() {
    let mut control = million(2);
    let first = control.add("first", best_effort(1)).unwrap();
    let second = control.add("second", best_effort(1)).unwrap();
    let mut scheduler = Scheduler::new(control.shared());
    let mut now = MILLISECOND;
    scheduler.run(now, 1, &mut |_, _| ());
    while scheduler.admit(first, 1000, now) {}
    scheduler.enqueue(
        first,
        Entry {
            handle: 1,
            cost: 1000,
        },
    );
    control.remove(first);
    assert!(control.add("third", best_effort(1)).is_err());
    // What waits is still served, then the index is free.
    let mut served = 0;
    for _ in 0..20 {
        now += MILLISECOND;
        scheduler.run(now, 10, &mut |_, _| served += 1);
    }
    assert_eq!(served, 1);
    let third = control.add("third", critical(500, 1000, 100)).unwrap();
    assert_eq!(third, first);
    assert_ne!(third, second);
    let tokens = control.shared().tokens(third).unwrap();
    assert_eq!((tokens.spent, tokens.waits, tokens.credit), (0, 0, 0));
}

#[test]
fn feedback_tightens_loosens_and_advises() {
    let mut control = million(4);
    let id = control.add("db", critical(500, 200_000, 100)).unwrap();
    let other = control.add("be", best_effort(100)).unwrap();
    let mut now = SECOND;
    // Too few samples, or best effort: nothing.
    assert!(
        control
            .feedback(now, &[(id, 900, 10), (other, 90_000, 1000)])
            .is_empty()
    );
    assert!(control.feedback(now, &[(id, 480, 1000)]).is_empty());
    let advice = control.feedback(now, &[(id, 600, 1000)]);
    assert_eq!(
        advice[0].to_string(),
        "tenant \"db\" sees a p95 of 600 µs and was promised 500 µs: the device's token rate goes from \
         100.0 % to 90.0 % of the model's"
    );
    assert_eq!(control.device_rate(), 32_400_000);
    // The change shows before there is another.
    assert!(
        control
            .feedback(now + MILLISECOND, &[(id, 600, 1000)])
            .is_empty()
    );
    let mut recalibrate = 0;
    for _ in 0..200 {
        now += SECOND / 5;
        let advice = control.feedback(now, &[(id, 800, 1000)]);
        recalibrate += advice
            .iter()
            .filter(|advice| matches!(advice, Advice::Recalibrate { .. }))
            .count();
    }
    assert_eq!(recalibrate, 1);
    // Never less than half, never less than is promised.
    assert!(
        control.device_rate() >= 20_000_000,
        "{}",
        control.device_rate()
    );
    for _ in 0..200 {
        now += SECOND / 5;
        control.feedback(now, &[(id, 300, 1000)]);
    }
    assert_eq!(control.device_rate(), 36_000_000);
}

#[test]
fn grants_are_explained() {
    let mut control = million(4);
    let id = control.add("db", critical(500, 20_000, 90)).unwrap();
    let be = control.add("batch", best_effort(300)).unwrap();
    control.add("other", best_effort(100)).unwrap();
    let text = control.explain(id).unwrap().to_string();
    assert!(
        text.contains("20000 IOPS of 4096 bytes, 90 % reads"),
        "{text}"
    );
    assert!(text.contains("3.9 M tokens/s"), "{text}");
    assert!(
        text.contains("500 µs; the model bears 36.0 M tokens/s of mixed load"),
        "{text}"
    );
    let share = control.explain(be).unwrap();
    assert_eq!(share.rate, (36_000_000 - 3_990_000) * 3 / 4);
    assert!(
        share.to_string().contains("at least 24.0 M tokens/s"),
        "{share}"
    );
    assert_eq!(control.explain(TenantId(3)), None);
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![
        (1_u32..10_000).prop_map(best_effort),
        (400_u32..5000, 1_u32..900_000, 0_u8..=100)
            .prop_map(|(p95, iops, pct)| critical(p95, iops, pct)),
    ]
}

proptest! {
    /// Whoever was admitted fits; what a refusal offers is accepted.
    #[test]
    fn promises_can_be_kept(
        steps in prop::collection::vec((0_u32..6, class(), any::<bool>()), 1..40),
    ) {
        let mut control = million(6);
        for (serial, (index, class, remove)) in steps.into_iter().enumerate() {
            let name = serial.to_string();
            let there = control.tenant(TenantId(index)).cloned();
            let result = match there {
                Some(tenant) if remove => {
                    control.remove(tenant.id);
                    Ok(())
                }
                Some(tenant) => control.set(tenant.id, class),
                None => control.add(&name, class).map(|_| ()),
            };
            if let (Err(Refusal::TooMuch { fits_iops, .. }), Class::LatencyCritical(slo)) = (&result, class) {
                prop_assert!(*fits_iops < slo.iops);
            }
            let promised: u64 = control.tenants().filter_map(|tenant| match tenant.class {
                Class::LatencyCritical(_) => control.explain(tenant.id).map(|explanation| explanation.rate),
                Class::BestEffort { .. } => None,
            }).sum();
            prop_assert!(promised <= control.device_rate() * 99 / 100, "{promised}");
        }
    }
}
