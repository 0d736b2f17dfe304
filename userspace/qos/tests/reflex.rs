// SPDX-License-Identifier: GPL-2.0-only
//! ReFlex's experiment (ASPLOS 2017, section 5.5) in virtual time: two
//! latency-critical tenants with 100 % and 80 % reads, two best-effort ones with
//! 95 % and 25 % reads, on a device that is nothing but queues. With the
//! scheduler both promises hold, without it they break.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod common;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use common::{MILLISECOND, SECOND, best_effort, critical, million};
use qos::{Advice, Control, Entry, Nanos, Op, Scheduler, TenantId, Tokens};

const TICK: Nanos = 2_000;
const WINDOW: Nanos = 200 * MILLISECOND;
const WINDOWS: usize = 5;
/// Requests that a best-effort tenant keeps outstanding.
const DEPTH: usize = 256;
const P95_US: u64 = 500;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // xorshift64* (Vigna, 2016).
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 33) % limit
    }

    /// Between two arrivals of so many a second, in random order.
    fn gap(&mut self, rate: f64) -> Nanos {
        let part = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        (-(1.0 - part).ln() / rate * 1e9) as Nanos
    }
}

/// 128 dies, each with its queue; a controller that takes a million commands a second.
struct Device {
    dies: Vec<Nanos>,
    controller: Nanos,
    read: Nanos,
    write: Nanos,
}

impl Device {
    fn new() -> Device {
        Device {
            dies: vec![0; 128],
            controller: 0,
            read: 64_000,
            write: 640_000,
        }
    }

    fn submit(&mut self, now: Nanos, op: Op, random: &mut Random) -> Nanos {
        self.controller = self.controller.max(now) + 1_000;
        let begin = self.controller;
        let die = random.below(self.dies.len() as u64) as usize;
        let time = if op == Op::Read {
            self.read
        } else {
            self.write
        };
        self.dies[die] = self.dies[die].max(begin) + time;
        self.dies[die]
    }
}

#[derive(Clone, Copy)]
enum Load {
    /// So many requests a second, whatever happens.
    Open(f64),
    /// So many outstanding.
    Closed(usize),
}

struct Client {
    id: TenantId,
    load: Load,
    read_pct: u64,
    next: Nanos,
    outstanding: usize,
    /// Latencies of the window's reads: whole, and the device's part.
    reads: Vec<(Nanos, Nanos)>,
    tokens: Tokens,
}

struct Request {
    client: usize,
    op: Op,
    arrived: Nanos,
}

/// What a window came to.
struct Window {
    /// Of each client: p95 in µs, whole and the device's part, and tokens.
    clients: Vec<(u64, u64, Tokens)>,
}

impl Window {
    fn tokens(&self) -> Tokens {
        self.clients.iter().map(|client| client.2).sum()
    }
}

struct Lab {
    control: Control,
    scheduler: Option<Scheduler>,
    device: Device,
    clients: Vec<Client>,
    requests: Vec<Request>,
    free: VecDeque<u32>,
    running: BinaryHeap<Reverse<(Nanos, u32, Nanos)>>,
    random: Random,
    now: Nanos,
}

impl Lab {
    fn new(scheduled: bool) -> Lab {
        let mut control = million(8);
        let mut clients = Vec::new();
        let mut client = |id, load, read_pct| {
            let (reads, next, outstanding, tokens) = (Vec::new(), 0, 0, 0);
            clients.push(Client {
                id,
                load,
                read_pct,
                next,
                outstanding,
                reads,
                tokens,
            });
        };
        let a = control.add("A", critical(500, 120_000, 100)).unwrap();
        let b = control.add("B", critical(500, 70_000, 80)).unwrap();
        client(a, Load::Open(120_000.0), 100);
        client(b, Load::Open(70_000.0), 80);
        client(
            control.add("C", best_effort(100)).unwrap(),
            Load::Closed(DEPTH),
            95,
        );
        client(
            control.add("D", best_effort(100)).unwrap(),
            Load::Closed(DEPTH),
            25,
        );
        let scheduler = scheduled.then(|| Scheduler::new(control.shared()));
        Lab {
            control,
            scheduler,
            device: Device::new(),
            clients,
            requests: Vec::new(),
            free: VecDeque::new(),
            running: BinaryHeap::new(),
            random: Random(0x1234_5678_9abc_def1),
            now: SECOND,
        }
    }

    fn window(&mut self) -> Window {
        let end = self.now + WINDOW;
        while self.now < end {
            self.now += TICK;
            self.complete();
            for client in 0..self.clients.len() {
                self.arrive(client);
            }
            self.round();
        }
        let clients = self.clients.iter_mut().map(|client| {
            let (whole, device): (Vec<_>, Vec<_>) = client.reads.drain(..).unzip();
            (
                p95_us(whole),
                p95_us(device),
                std::mem::take(&mut client.tokens),
            )
        });
        Window {
            clients: clients.collect(),
        }
    }

    fn complete(&mut self) {
        while let Some(&Reverse((done, handle, granted))) = self.running.peek() {
            if done > self.now {
                return;
            }
            self.running.pop();
            let request = &self.requests[handle as usize];
            let client = &mut self.clients[request.client];
            client.outstanding -= 1;
            if request.op == Op::Read {
                client.reads.push((done - request.arrived, done - granted));
            }
            self.free.push_back(handle);
        }
    }

    fn arrive(&mut self, index: usize) {
        match self.clients[index].load {
            Load::Open(rate) => {
                while self.clients[index].next < self.now {
                    let arrived = self.clients[index].next.max(self.now - TICK);
                    self.clients[index].next = arrived + self.random.gap(rate);
                    self.submit(index);
                }
            }
            Load::Closed(depth) => {
                while self.clients[index].outstanding < depth {
                    self.submit(index);
                }
            }
        }
    }

    fn submit(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.outstanding += 1;
        let op = if self.random.below(100) < client.read_pct {
            Op::Read
        } else {
            Op::Write
        };
        let request = Request {
            client: index,
            op,
            arrived: self.now,
        };
        let handle = match self.free.pop_front() {
            Some(handle) => {
                self.requests[handle as usize] = request;
                handle
            }
            None => {
                self.requests.push(request);
                self.requests.len() as u32 - 1
            }
        };
        let (id, cost) = (client.id, self.control.shared().cost(op, 4096));
        if let Some(scheduler) = &mut self.scheduler {
            if !scheduler.admit(id, cost, self.now) {
                return scheduler.enqueue(id, Entry { handle, cost });
            }
        }
        self.start(handle);
    }

    fn start(&mut self, handle: u32) {
        let request = &self.requests[handle as usize];
        let cost = self.control.shared().cost(request.op, 4096);
        self.clients[request.client].tokens += cost;
        let done = self.device.submit(self.now, request.op, &mut self.random);
        self.running.push(Reverse((done, handle, self.now)));
    }

    fn round(&mut self) {
        let Some(mut scheduler) = self.scheduler.take() else {
            return;
        };
        scheduler.run(self.now, 1000, &mut |_, handle| self.start(handle));
        self.scheduler = Some(scheduler);
    }
}

fn p95_us(mut latencies: Vec<Nanos>) -> u64 {
    latencies.sort_unstable();
    latencies
        .get(latencies.len() * 95 / 100)
        .map_or(0, |nanos| nanos / 1000)
}

#[test]
fn promises_hold_with_the_scheduler() {
    let mut lab = Lab::new(true);
    lab.window();
    for _ in 0..WINDOWS {
        let window = lab.window();
        let [a, b, c, d] = window.clients[..] else {
            panic!()
        };
        println!("A {a:?} B {b:?} C {c:?} D {d:?}");
        assert!(
            a.0 <= P95_US && b.0 <= P95_US,
            "p95 of A {} µs, of B {} µs",
            a.0,
            b.0
        );
        // The best-effort tenants share evenly, in tokens, whatever they ask for.
        assert!(
            (c.2 - d.2).abs() * 20 <= c.2 + d.2,
            "C {} and D {}",
            c.2,
            d.2
        );
        // All that the model allows at this latency is used.
        let all = 36_000_000 / 5;
        assert!(
            window.tokens() >= all * 97 / 100,
            "{} of {all}",
            window.tokens()
        );
    }
}

#[test]
fn promises_break_without_it() {
    let mut lab = Lab::new(false);
    lab.window();
    for _ in 0..2 {
        let window = lab.window();
        let [a, b, c, d] = window.clients[..] else {
            panic!()
        };
        println!("A {a:?} B {b:?} C {c:?} D {d:?}");
        assert!(
            a.0 > 2 * P95_US && b.0 > 2 * P95_US,
            "p95 of A {} µs, of B {} µs",
            a.0,
            b.0
        );
    }
}

/// The device's writes take twice as long as when it was calibrated.
#[test]
fn feedback_finds_a_slower_device_out() {
    let mut lab = Lab::new(true);
    // Room for best effort to give way.
    lab.control
        .set(lab.clients[1].id, critical(500, 20_000, 80))
        .unwrap();
    lab.clients[1].load = Load::Open(20_000.0);
    lab.device.write = 1_000_000;
    lab.window();
    let before = lab.window();
    assert!(before.clients[0].0 > P95_US, "{}", before.clients[0].0);
    let mut tightened = 0;
    let mut last = before;
    for _ in 0..25 {
        let seen: Vec<_> = lab
            .clients
            .iter()
            .zip(&last.clients)
            .map(|(c, seen)| (c.id, seen.1 as u32, 1000))
            .collect();
        let advice = lab.control.feedback(lab.now, &seen);
        tightened += advice
            .iter()
            .filter(|advice| matches!(advice, Advice::Tightened { .. }))
            .count();
        last = lab.window();
    }
    assert!(tightened > 0);
    let (a, b) = (last.clients[0].0, last.clients[1].0);
    assert!(
        a <= P95_US * 11 / 10 && b <= P95_US * 11 / 10,
        "p95 of A {a} µs, of B {b} µs"
    );
    assert!(lab.control.device_rate() < 36_000_000);
}
