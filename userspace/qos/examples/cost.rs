// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler costs per request, with the loop around it: nanoseconds
//! here; where the machine is shared, instructions: run it under `valgrind
//! --tool=callgrind` with two numbers of requests, and divide the difference of
//! the instructions by that of the requests.
//!
//! `cost ACTIVE TENANTS [admit|wait] [REQUESTS]`: so many of the registered
//! tenants send requests in turn, every other of them latency-critical; `admit`
//! has tokens for all, `wait` lets all queue.

use std::hint::black_box;
use std::time::Instant;

use qos::{Class, Control, DeviceModel, Entry, Nanos, Scheduler, Slo, TenantId};

/// Requests that one loop of the server finds.
const BATCH: u64 = 32;

struct Bench {
    scheduler: Scheduler,
    ids: Vec<TenantId>,
    now: Nanos,
    served: u64,
}

fn all_admitted(bench: &mut Bench, requests: u64) {
    // A million requests a second.
    for batch in 0..requests / BATCH {
        bench.now += BATCH * 1000;
        for slot in 0..BATCH {
            let turn = (batch * BATCH + slot) as usize % bench.ids.len();
            let Some(&id) = bench.ids.get(turn) else {
                return;
            };
            let admitted = bench
                .scheduler
                .admit(black_box(id), black_box(100), bench.now);
            bench.served += u64::from(admitted);
        }
        bench
            .scheduler
            .run(bench.now, 1024, &mut |_, _| bench.served += 1);
    }
}

fn most_wait(bench: &mut Bench, requests: u64) {
    for batch in 0..requests / BATCH {
        bench.now += BATCH * 1000;
        for slot in 0..BATCH {
            let turn = (batch * BATCH + slot) as usize % bench.ids.len();
            let Some(&id) = bench.ids.get(turn) else {
                return;
            };
            let entry = Entry {
                handle: slot as u32,
                cost: 100,
            };
            if bench.scheduler.waiting(id) > 64 {
                // As many as its connections have slots for.
                continue;
            }
            if bench.scheduler.waiting(id) > 0 || !bench.scheduler.admit(id, 100, bench.now) {
                bench.scheduler.enqueue(id, entry);
            } else {
                bench.served += 1;
            }
        }
        let served = &mut bench.served;
        bench
            .scheduler
            .run(bench.now, 1024, &mut |_, _| *served += 1);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let active: usize = args.next().as_deref().unwrap_or("1").parse()?;
    let tenants: usize = args.next().as_deref().unwrap_or("1").parse()?;
    let wait = args.next().as_deref() == Some("wait");
    let requests: u64 = args.next().as_deref().unwrap_or("1000000").parse()?;
    // Tokens for all, or for somewhat less than comes.
    let name = if wait { "million" } else { "unlimited" };
    let model = DeviceModel::preset(name).ok_or("no such preset")?;
    let max = if wait { 99_000_000 } else { model.max };
    let mut control = Control::new(DeviceModel { max, ..model }, tenants)?;
    let mut ids = Vec::new();
    for index in 0..tenants {
        let slo = Slo {
            p95_us: 3000,
            iops: if wait { 50_000 } else { 200_000 },
            read_pct: 100,
            block: 4096,
        };
        let class = match index % 2 {
            0 => Class::BestEffort { weight: 100 },
            _ if index >= 20 => Class::LatencyCritical(Slo { iops: 100, ..slo }),
            _ => Class::LatencyCritical(slo),
        };
        let id = control.add(&index.to_string(), class)?;
        if index < active {
            ids.push(id);
        }
    }
    let scheduler = Scheduler::new(control.shared());
    let mut bench = Bench {
        scheduler,
        ids,
        now: 1_000_000_000,
        served: 0,
    };
    go(&mut bench, wait, 10_000);
    bench.served = 0;
    let begin = Instant::now();
    go(&mut bench, wait, requests);
    let nanos = begin.elapsed().as_nanos() as f64 / requests as f64;
    println!(
        "{active} of {tenants} tenants, {}: {nanos:.1} ns a request, {} of {requests} served",
        if wait { "waiting" } else { "admitted" },
        bench.served
    );
    Ok(())
}

fn go(bench: &mut Bench, wait: bool, requests: u64) {
    if wait {
        most_wait(bench, requests)
    } else {
        all_admitted(bench, requests)
    }
}
