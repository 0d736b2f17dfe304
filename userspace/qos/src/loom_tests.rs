// SPDX-License-Identifier: GPL-2.0-only
//! The atomics under loom, which tries the orders in which threads can take
//! their steps and what each may see of the others' memory. Every test ends
//! with the books: what was earned is on the account, in the bucket or spent.

use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

use crate::account::{Account, Terms};
use crate::bucket::Bucket;
use crate::ticks::{GRAINS, grains, over};

/// A token a nanosecond, so that figures are easy.
const RATE: u32 = 1_000_000_000;
const CRITICAL: Terms = Terms::LatencyCritical {
    rate: RATE,
    deficit: 1000,
};
const BEGIN: u64 = 1_000_000;

struct World {
    bucket: Bucket,
    account: Account,
}

impl World {
    /// A device that earns `rate` tokens a second, and its one tenant.
    fn new(rate: u32, terms: Terms) -> Arc<World> {
        let world = World {
            bucket: Bucket::new(),
            account: Account::new(),
        };
        world.bucket.set_limit(grains(1_000_000_000));
        world.bucket.settle(BEGIN);
        world.bucket.change_rate(i64::from(rate));
        world.account.change(&world.bucket, terms);
        Arc::new(world)
    }

    fn earned(&self) -> i64 {
        let account = self.account.counters.earned.load(crate::sync::Relaxed);
        let expired = self.account.counters.expired.load(crate::sync::Relaxed);
        (self.bucket.earned() + account - self.bucket.expired() - expired) as i64
    }

    /// In tokens, on the account, in the bucket, in the flow.
    fn held(&self) -> i64 {
        self.account.credit() + self.bucket.level() + self.account.unclaimed(&self.bucket)
    }
}

/// Explores `body` with up to `preemptions` switches away from a thread that could go on.
fn explore(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

fn both(world: &Arc<World>, one: fn(&World), two: fn(&World)) {
    let there = Arc::clone(world);
    let other = thread::spawn(move || one(&there));
    two(world);
    other.join().unwrap();
}

#[test]
fn time_is_credited_once() {
    explore(3, || {
        let world = World::new(RATE, CRITICAL);
        world.account.join(&world.bucket, BEGIN);
        both(
            &world,
            |world| world.account.settle(&world.bucket, BEGIN + 100),
            |world| {
                world.account.settle(&world.bucket, BEGIN + 70);
                world.account.settle(&world.bucket, BEGIN + 120);
            },
        );
        world.account.settle(&world.bucket, BEGIN + 150);
        assert_eq!(world.account.credit(), 150 * GRAINS);
        assert_eq!(world.held(), world.earned());
    });
}

#[test]
fn credit_is_spent_once() {
    explore(3, || {
        let world = World::new(RATE, CRITICAL);
        world.account.deposit(grains(100));
        let there = Arc::clone(&world);
        let other = thread::spawn(move || there.account.take(grains(100), 0, 0));
        let mine = world.account.take(grains(100), 0, 0);
        let got = [mine, other.join().unwrap()];
        assert_eq!(got.iter().flatten().sum::<i64>(), grains(100));
        assert_eq!(world.account.credit(), 0);
    });
}

#[test]
fn critical_tenants_come_and_go() {
    explore(3, || {
        let world = World::new(RATE, CRITICAL);
        both(
            &world,
            |world| {
                world.account.join(&world.bucket, BEGIN + 10);
                world.account.leave(&world.bucket, BEGIN + 40);
            },
            |world| {
                world.account.join(&world.bucket, BEGIN + 20);
                world.account.settle(&world.bucket, BEGIN + 30);
                world.account.leave(&world.bucket, BEGIN + 50);
            },
        );
        assert!(!world.account.is_in());
        assert_eq!(world.bucket.rate(), i64::from(RATE));
        let end = world.bucket.settle(BEGIN + 60);
        assert_eq!(end, BEGIN + 60);
        assert_eq!(world.held(), world.earned());
        // Never more than the device's rate; what is lost is lost in races only.
        assert!(world.earned() <= 60 * GRAINS, "{}", world.earned());
    });
}

#[test]
fn waiting_tenants_come_and_go() {
    explore(2, || {
        let world = World::new(RATE, Terms::BestEffort { weight: 3 });
        both(
            &world,
            |world| {
                world.account.join(&world.bucket, BEGIN + 10);
                world.bucket.settle(BEGIN + 20);
                world.account.settle(&world.bucket, BEGIN + 20);
                world.account.leave(&world.bucket, BEGIN + 20);
            },
            |world| {
                world.account.join(&world.bucket, BEGIN + 10);
                world.bucket.settle(BEGIN + 30);
                world.account.leave(&world.bucket, BEGIN + 30);
            },
        );
        assert!(!world.account.is_in());
        assert_eq!(world.bucket.weights(), 0);
        assert_eq!(world.earned(), 30 * GRAINS);
        assert_eq!(world.held(), world.earned());
    });
}

#[test]
fn pouring_meets_newcomers() {
    explore(2, || {
        let world = World::new(0, Terms::BestEffort { weight: 3 });
        world.bucket.change_weights(5);
        both(
            &world,
            |world| world.bucket.add(1000),
            |world| {
                world.account.join(&world.bucket, BEGIN);
                world.bucket.add(500);
                world.account.settle(&world.bucket, BEGIN);
            },
        );
        // The other five weights' part: what the flow gave each of them.
        let others = 5 * world.bucket.flow() as i64;
        assert_eq!(others + world.held(), 1500);
    });
}

#[test]
fn terms_change_as_a_whole() {
    explore(2, || {
        let world = World::new(RATE, CRITICAL);
        world.account.join(&world.bucket, BEGIN);
        both(
            &world,
            |world| {
                let half = Terms::LatencyCritical {
                    rate: RATE / 2,
                    deficit: 0,
                };
                world.account.change(&world.bucket, half);
            },
            |world| {
                world.account.settle(&world.bucket, BEGIN + 100);
                world.bucket.settle(BEGIN + 100);
            },
        );
        world.account.settle(&world.bucket, BEGIN + 200);
        world.bucket.settle(BEGIN + 200);
        // It earned between half and all of its old rate, the bucket the rest.
        assert!(
            world.account.credit() >= over(u64::from(RATE / 2), 100),
            "{}",
            world.account.credit()
        );
        assert_eq!(world.bucket.rate(), i64::from(RATE - RATE / 2));
        assert_eq!(world.held(), world.earned());
        assert!(world.earned() <= 200 * GRAINS, "{}", world.earned());
    });
}

#[test]
fn class_changes_while_it_waits() {
    explore(2, || {
        let world = World::new(RATE, Terms::BestEffort { weight: 7 });
        both(
            &world,
            |world| world.account.change(&world.bucket, CRITICAL),
            |world| {
                world.account.join(&world.bucket, BEGIN + 10);
                world.bucket.settle(BEGIN + 20);
                world.account.settle(&world.bucket, BEGIN + 20);
                world.account.leave(&world.bucket, BEGIN + 30);
            },
        );
        assert!(!world.account.is_in());
        assert_eq!(world.bucket.weights(), 0);
        assert_eq!(world.bucket.rate(), i64::from(RATE));
        assert_eq!(world.held(), world.earned());
        assert!(world.earned() <= 30 * GRAINS, "{}", world.earned());
    });
}

#[test]
fn the_bucket_is_not_emptied_twice() {
    explore(3, || {
        let world = World::new(0, Terms::BestEffort { weight: 1 });
        world.bucket.add(grains(100));
        let there = Arc::clone(&world);
        let other = thread::spawn(move || there.bucket.take(grains(60), 0));
        let mine = world.bucket.take(grains(60), 0);
        let got: i64 = [mine, other.join().unwrap()].iter().flatten().sum();
        assert_eq!(got + world.bucket.level(), grains(100));
        assert!(world.bucket.level() > -grains(60));
    });
}
