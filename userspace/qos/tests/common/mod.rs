// SPDX-License-Identifier: GPL-2.0-only
//! A server's loop in virtual time, with tenants that always have more.
#![allow(dead_code, reason = "each test uses a part")]

use qos::{Class, Control, DeviceModel, Entry, Nanos, Scheduler, Slo, TenantId, Tokens};

/// Of a server's loop.
pub const TICK: Nanos = 4_000;
pub const SECOND: Nanos = 1_000_000_000;
pub const MILLISECOND: Nanos = 1_000_000;

pub fn critical(p95_us: u32, iops: u32, read_pct: u8) -> Class {
    Class::LatencyCritical(Slo {
        p95_us,
        iops,
        read_pct,
        block: 4096,
    })
}

pub fn best_effort(weight: u32) -> Class {
    Class::BestEffort { weight }
}

pub fn million(capacity: usize) -> Control {
    Control::new(DeviceModel::preset("million").unwrap(), capacity).unwrap()
}

/// Somebody who keeps requests waiting.
pub struct Greedy {
    pub tenant: TenantId,
    pub cost: Tokens,
    /// Requests that it keeps waiting on each of its threads.
    pub depth: usize,
    pub threads: Vec<usize>,
    /// Tokens of what ran.
    pub spent: Tokens,
    /// Tokens a second that it asks for at most.
    pub limit: Option<i64>,
}

impl Greedy {
    pub fn new(tenant: TenantId, cost: Tokens) -> Greedy {
        Greedy {
            tenant,
            cost,
            depth: 32,
            threads: vec![0],
            spent: 0,
            limit: None,
        }
    }
}

pub struct Server {
    pub control: Control,
    pub threads: Vec<Scheduler>,
    pub now: Nanos,
    pub begin: Nanos,
}

impl Server {
    pub fn new(control: Control, threads: usize) -> Server {
        let threads = (0..threads)
            .map(|_| Scheduler::new(control.shared()))
            .collect();
        let now = 1_000_000_000_000;
        let mut server = Server {
            control,
            threads,
            now,
            begin: now,
        };
        // The accounts' clock begins.
        server.threads[0].idle(now);
        server
    }

    /// Lets these tenants take all they get for so long.
    pub fn run(&mut self, tenants: &mut [Greedy], time: Nanos) {
        let begin = self.now;
        let before: Vec<Tokens> = tenants.iter().map(|greedy| greedy.spent).collect();
        while self.now < begin + time {
            self.now += TICK;
            for (greedy, before) in tenants.iter_mut().zip(&before) {
                let allowed = greedy.limit.map_or(i64::MAX, |limit| {
                    (i128::from(limit) * i128::from(self.now - begin) / i128::from(SECOND)) as i64
                });
                for thread in greedy.threads.clone() {
                    submit(
                        &mut self.threads[thread],
                        greedy,
                        self.now,
                        allowed.saturating_add(*before),
                    );
                }
            }
            for scheduler in &mut self.threads {
                scheduler.run(self.now, 1000, &mut |id, handle| {
                    let greedy = tenants
                        .iter_mut()
                        .find(|greedy| greedy.tenant == id)
                        .unwrap();
                    greedy.spent += Tokens::from(handle);
                });
            }
        }
    }

    /// Lets time pass with nothing to do.
    pub fn rest(&mut self, time: Nanos) {
        for scheduler in &mut self.threads {
            scheduler.idle(self.now);
        }
        self.now += time;
    }
}

fn submit(scheduler: &mut Scheduler, greedy: &mut Greedy, now: Nanos, allowed: i64) {
    while scheduler.waiting(greedy.tenant) < greedy.depth && greedy.spent < allowed {
        if scheduler.admit(greedy.tenant, greedy.cost, now) {
            greedy.spent += greedy.cost;
        } else {
            let handle = greedy.cost as u32;
            scheduler.enqueue(
                greedy.tenant,
                Entry {
                    handle,
                    cost: greedy.cost,
                },
            );
            if greedy.limit.is_some() {
                return;
            }
        }
    }
}

/// Is `value` within so many percent of `goal`?
pub fn near(value: i64, goal: i64, percent: i64) -> bool {
    (value - goal).abs() * 100 <= goal * percent
}
