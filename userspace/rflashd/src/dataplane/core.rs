// SPDX-License-Identifier: GPL-2.0-only
//! A core: one thread and its connections.
//!
//! A round goes through the mailbox, the connections that were busy lately,
//! those that the poller names, the backends, the scheduler, and the replies.
//! A connection is hot while commands come: it is received from directly, which
//! is cheaper than asking the poller first. Registration with the poller is
//! edge-triggered and never changes; what it says about a hot connection is no
//! news.
//!
//! A core that has nothing to do looks for work a little longer and then
//! sleeps. How long it looks depends on how long it slept lately: a core whose
//! work comes in rare pieces does not burn its CPU between them.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::backend::Nanos;

use super::Letter;
use super::clock::{self, MICROSECOND, MILLISECOND, SECOND};
use super::connection::{Connection, Phase, Table};
use super::engine::Engine;
use super::fault::End;
use super::mailbox::Mailbox;
use super::poller::Poller;
use super::receive::Received;
use super::request::{NONE, State};

/// Keys of the poller that are no connections.
const BELL: u64 = u64::MAX;
const RING: u64 = u64::MAX - 1;

/// Rounds between looks at the poller while connections are hot.
const POLL_EVERY: u32 = 16;
/// Rounds without data after which a connection is not hot any more: with few
/// of them, more than a round trip; with many, looking at all costs too much.
const QUIET_FEW: u32 = 2000;
const QUIET_MANY: u32 = 16;
const FEW: usize = 4;
/// Period of the timers. Each looks at one of [`SLICES`] parts of the
/// connections.
const TICK: Nanos = 100 * MILLISECOND;
const SLICES: u32 = 4;
/// Time for the peer to close after a terminate request.
const LINGER: Nanos = 2 * SECOND;
/// Requests the scheduler may start in a round.
const BUDGET: usize = 256;
/// Less is not worth a sleep.
const NAP: Nanos = 5 * MICROSECOND;

/// The other cores: their CPUs and mailboxes.
pub struct Neighbour {
    pub cpu: Option<u32>,
    pub mailbox: Arc<Mailbox<Letter>>,
    pub connections: AtomicUsize,
    /// While stopping: I/O queues that are still open; before: not known.
    pub queues: AtomicUsize,
}

/// It is not known how many.
pub const UNKNOWN: usize = usize::MAX;

pub struct Core {
    engine: Engine,
    table: Table,
    poller: Poller,
    neighbours: Arc<[Neighbour]>,
    hot: Vec<u32>,
    /// Keys from the poller, and slots to start again.
    ready: Vec<(u64, bool)>,
    again: Vec<u32>,
    indices: Vec<u32>,
    ring: Option<RawFd>,
    rounds: u32,
    next_tick: Nanos,
    slice: u32,
    idle_since: Option<Nanos>,
    spin: Nanos,
    /// Since when accounting has been done.
    accounted: Nanos,
    stop: Option<Nanos>,
}

fn key(conn: &Connection) -> u64 {
    (u64::from(conn.generation) << 32) | u64::from(conn.index)
}

impl Core {
    pub fn new(engine: Engine, neighbours: Arc<[Neighbour]>) -> std::io::Result<Core> {
        let poller = Poller::new()?;
        poller.add_readable(engine.mailbox.bell().as_raw_fd(), BELL)?;
        let now = clock::now();
        Ok(Core {
            spin: engine.settings.spin,
            engine,
            table: Table::default(),
            poller,
            neighbours,
            hot: Vec::with_capacity(1024),
            ready: Vec::with_capacity(256),
            again: Vec::with_capacity(64),
            indices: Vec::with_capacity(1024),
            ring: None,
            rounds: 0,
            next_tick: now + TICK,
            slice: 0,
            idle_since: None,
            accounted: now,
            stop: None,
        })
    }

    /// Serve until told to stop.
    pub fn run(mut self) {
        loop {
            let busy = self.round();
            if self.stop.is_some() && self.stopped() {
                return;
            }
            if busy {
                let metrics = &self.engine.metrics.core;
                let now = self.engine.now;
                metrics
                    .busy_ns
                    .add(now.saturating_sub(std::mem::replace(&mut self.accounted, now)));
                self.idle_since = None;
            } else {
                self.idle();
            }
        }
    }

    /// One round; `true` if anything was done.
    fn round(&mut self) -> bool {
        self.engine.now = clock::now();
        self.rounds = self.rounds.wrapping_add(1);
        let mut busy = false;
        if self.engine.mailbox.has_letters() {
            self.letters();
            busy = true;
        }
        busy |= self.serve_hot();
        if self.hot.is_empty() || self.rounds % POLL_EVERY == 0 {
            busy |= self.poll(0);
        }
        busy |= self.backends();
        self.schedule();
        self.retry();
        if let Err(error) = self.engine.backends.kick() {
            log::error!("io_uring: {error}");
        }
        busy |= self.flush_touched();
        self.moves();
        if self.engine.now >= self.next_tick {
            self.tick();
        }
        busy
    }

    fn serve_hot(&mut self) -> bool {
        let mut busy = false;
        let most_quiet = if self.hot.len() <= FEW {
            QUIET_FEW
        } else {
            QUIET_MANY
        };
        let mut at = 0;
        while let Some(&index) = self.hot.get(at) {
            let Some(conn) = self.table.get_mut(index) else {
                self.hot.swap_remove(at);
                continue;
            };
            match self.engine.receive(conn) {
                Ok(Received::Something) => {
                    conn.quiet = 0;
                    busy = true;
                }
                Ok(Received::Nothing) => {
                    conn.quiet += 1;
                    if conn.quiet > most_quiet {
                        conn.hot = false;
                        self.engine.rest(conn);
                        self.hot.swap_remove(at);
                        continue;
                    }
                }
                Err(end) => {
                    busy = true;
                    self.end(index, end);
                    // The list may have changed: what is at `at` now comes next.
                    continue;
                }
            }
            at += 1;
        }
        busy
    }

    /// Make a connection hot.
    fn heat(&mut self, index: u32) {
        if let Some(conn) = self.table.get_mut(index) {
            conn.quiet = 0;
            if !conn.hot {
                conn.hot = true;
                self.hot.push(index);
            }
        }
    }

    /// Ask the poller; `true` if something happened.
    fn poll(&mut self, timeout: Nanos) -> bool {
        self.ready.clear();
        let ready = self.poller.wait(timeout);
        self.ready
            .extend(ready.map(|r| (r.key, r.writable && !r.readable)));
        let mut at = 0;
        while let Some(&(key, only_writable)) = self.ready.get(at) {
            at += 1;
            match key {
                BELL => self.engine.mailbox.silence(),
                RING => {}
                _ => self.socket_ready(key, only_writable),
            }
        }
        at > 0
    }

    fn socket_ready(&mut self, event: u64, only_writable: bool) {
        let index = event as u32;
        let Some(conn) = self.table.get_mut(index).filter(|c| key(c) == event) else {
            return;
        };
        if conn.backlog.is_some() {
            self.engine.touch(conn);
        }
        if !only_writable {
            self.heat(index);
        }
    }

    fn backends(&mut self) -> bool {
        let engine = &mut self.engine;
        engine.backends.poll(engine.now, &mut engine.done);
        if engine.done.is_empty() {
            return false;
        }
        let mut done = std::mem::take(&mut engine.done);
        for (ticket, status) in done.drain(..) {
            let slot = ticket.0;
            let Some(request) = engine.slots.get(slot) else {
                continue;
            };
            if request.orphan {
                engine.free_orphan(slot);
            } else if let Some(conn) = self.table.get_mut(request.connection) {
                engine.complete(conn, slot, status);
            }
        }
        engine.done = done;
        true
    }

    fn schedule(&mut self) {
        let engine = &mut self.engine;
        engine.gate.run(engine.now, BUDGET, &mut engine.granted);
        if engine.granted.is_empty() {
            return;
        }
        let mut granted = std::mem::take(&mut engine.granted);
        for slot in granted.drain(..) {
            let connection = engine.slots.get(slot).map_or(NONE, |r| r.connection);
            if let Some(conn) = self.table.get_mut(connection) {
                engine.start(conn, slot);
            }
        }
        engine.granted = granted;
    }

    /// Requests that found no buffer or no room at the backend, and connections
    /// that found no slot.
    fn retry(&mut self) {
        let engine = &mut self.engine;
        if !engine.want_buffer.is_empty() && engine.pool.free_bytes() > 0 {
            let mut again = std::mem::take(&mut self.again);
            engine.retry_buffers(&mut again);
            for slot in again.drain(..) {
                let connection = engine.slots.get(slot).map_or(NONE, |r| r.connection);
                if let Some(conn) = self.table.get_mut(connection) {
                    let granted = engine.slots.get(slot).map_or(0, |r| r.granted);
                    engine.start(conn, slot);
                    if let Some(request) = engine.slots.get_mut(slot) {
                        request.granted = granted;
                    }
                }
            }
            self.again = again;
        }
        for _ in 0..engine.want_backend.len() {
            let Some(slot) = engine.want_backend.pop_front() else {
                break;
            };
            let Some(request) = engine.slots.get(slot) else {
                continue;
            };
            if request.state != State::Queued {
                continue;
            }
            if let Some(conn) = self.table.get_mut(request.connection) {
                engine.submit(conn, slot);
            }
            if engine
                .slots
                .get(slot)
                .is_some_and(|r| r.state == State::Queued)
            {
                break;
            }
        }
        self.feed_starved();
    }

    fn feed_starved(&mut self) {
        while self.engine.slots.left() > 0 {
            let Some(index) = self.engine.starved.pop() else {
                return;
            };
            let Some(conn) = self.table.get_mut(index) else {
                continue;
            };
            if conn.starved && conn.backlog.is_none() {
                if let Err(end) = self.engine.resume(conn) {
                    self.end(index, end);
                } else {
                    self.heat(index);
                }
            }
        }
    }

    fn flush_touched(&mut self) -> bool {
        self.aborts();
        if self.engine.touched.is_empty() {
            return false;
        }
        self.engine.now = clock::now();
        std::mem::swap(&mut self.engine.touched, &mut self.indices);
        let mut at = 0;
        while let Some(&index) = self.indices.get(at) {
            at += 1;
            let Some(conn) = self.table.get_mut(index) else {
                continue;
            };
            conn.touched = false;
            let mut result = self.engine.flush(conn);
            let waits = conn.starved && conn.backlog.is_none();
            if result.is_ok() && waits && self.engine.slots.left() > 0 {
                result = self.engine.resume(conn);
                self.heat(index);
            }
            if let Err(end) = result {
                self.end(index, end);
            }
        }
        self.indices.clear();
        true
    }

    /// Abort commands on whichever of this core's connections they are. Those
    /// of other cores are not aborted, as the standard allows.
    fn aborts(&mut self) {
        while let Some(abort) = self.engine.aborts.pop() {
            let controller = self
                .table
                .get_mut(abort.connection)
                .and_then(|c| c.association.as_ref().map(|a| Arc::clone(&a.controller)));
            let mut done = false;
            for index in 0..self.table.places() {
                let Some(conn) = self.table.get_mut(index) else {
                    continue;
                };
                let ours = match (&conn.association, &controller) {
                    (Some(a), Some(c)) => Arc::ptr_eq(&a.controller, c) && a.qid == abort.sqid,
                    _ => false,
                };
                if ours && self.engine.abort(conn, abort.cid) {
                    done = true;
                }
            }
            if let Some(request) = self.engine.slots.get_mut(abort.slot) {
                request.result = u64::from(!done);
            }
            if let Some(conn) = self.table.get_mut(abort.connection) {
                let success = nvme_wire::status::Status::SUCCESS;
                self.engine.finish(conn, abort.slot, success);
            }
        }
    }

    fn letters(&mut self) {
        for letter in self.engine.mailbox.take() {
            match letter {
                Letter::New { socket, peer } => {
                    let link = self.engine.link();
                    let now = self.engine.now;
                    let conn = Box::new(Connection::new(socket, peer, link, now));
                    self.engine.metrics.core.opened.add(1);
                    self.admit(conn);
                }
                Letter::Moved(conn) => self.admit(conn),
                Letter::Notify { index, generation } => self.notified(index, generation),
                Letter::Device(shared) => self.engine.gate.add(shared),
                Letter::Stop { graceful } => {
                    let grace = if graceful {
                        self.engine.settings.grace.as_nanos() as Nanos
                    } else {
                        0
                    };
                    self.stop = Some(self.engine.now + grace);
                }
            }
        }
    }

    /// Take in a connection.
    fn admit(&mut self, mut conn: Box<Connection>) {
        conn.hot = false;
        conn.touched = false;
        let index = self.table.insert(conn);
        let Some(conn) = self.table.get_mut(index) else {
            return;
        };
        if let Some(association) = conn.association.take() {
            self.engine.set_notify(conn, &association);
            conn.association = Some(association);
        }
        if let Err(error) = self.poller.add_socket(conn.fd(), key(conn)) {
            self.end(index, End::Socket(error));
            return;
        }
        self.count();
        self.heat(index);
        self.notified_index(index);
    }

    fn count(&self) {
        let n = self.table.len();
        self.engine.metrics.core.connections.set(n as u64);
        if let Some(me) = self.neighbours.get(self.engine.core) {
            me.connections.store(n, Ordering::Relaxed);
        }
    }

    fn notified(&mut self, index: u32, generation: u32) {
        let current = self
            .table
            .get_mut(index)
            .is_some_and(|c| c.generation == generation);
        if current {
            self.notified_index(index);
        }
    }

    /// The controller may have something for the connection.
    fn notified_index(&mut self, index: u32) {
        let Some(conn) = self.table.get_mut(index) else {
            return;
        };
        if conn.backlog.is_some() {
            // Replies may point into the namespaces; the next receive catches up.
            self.engine.touch(conn);
        } else if let Err(end) = self.engine.refresh(conn) {
            self.end(index, end);
            return;
        }
        if let Some(conn) = self.table.get_mut(index) {
            self.engine.events(conn);
        }
    }

    /// Hand connections to the cores of their tenants' CPUs.
    fn moves(&mut self) {
        for _ in 0..self.engine.moves.len() {
            let Some(index) = self.engine.moves.pop() else {
                return;
            };
            let Some(conn) = self.table.get_mut(index) else {
                continue;
            };
            let Some(to) = destination(conn, &self.neighbours, self.engine.core) else {
                continue;
            };
            // With requests in slots it stays; its next chance is when its
            // controller changes again.
            let free = conn.request_count == 0 && conn.backlog.is_none() && conn.payload.is_none();
            if !free || conn.phase != Phase::Live {
                continue;
            }
            if let Some(conn) = self.take(index) {
                if let Some(neighbour) = self.neighbours.get(to) {
                    neighbour.mailbox.post(Letter::Moved(conn));
                }
            }
        }
    }

    /// Take a connection out of this core.
    fn take(&mut self, index: u32) -> Option<Box<Connection>> {
        let conn = self.table.remove(index)?;
        self.poller.remove(conn.fd());
        if conn.hot {
            self.hot.retain(|&i| i != index);
        }
        self.count();
        Some(conn)
    }

    /// A connection ends: at once, or after the peer had time to read why.
    fn end(&mut self, index: u32, end: End) {
        let engine = &mut self.engine;
        engine.outbox.clear();
        engine.released.clear();
        engine.batch = super::engine::Batch::default();
        let Some(conn) = self.table.get_mut(index) else {
            return;
        };
        match &end {
            End::Closed => log::debug!("connection from {} closed", conn.peer.remote),
            end => engine.complain(conn, end),
        }
        if matches!(end, End::Fault(_)) {
            engine.metrics.core.protocol_errors.add(1);
            if conn.backlog.is_none() && conn.phase != Phase::Ending {
                engine.drop_requests(conn, false);
                conn.association = None;
                conn.phase = Phase::Ending;
                conn.stash = Vec::new();
                conn.starved = false;
                conn.since = engine.now;
                if rustix::net::shutdown(&conn.socket, rustix::net::Shutdown::Write).is_ok() {
                    return;
                }
            }
        }
        self.close(index);
    }

    fn close(&mut self, index: u32) {
        if let Some(mut conn) = self.take(index) {
            self.engine.drop_requests(&mut conn, false);
            let stash = std::mem::take(&mut conn.stash);
            self.engine.keep_stash(stash);
        }
    }

    fn tick(&mut self) {
        let now = self.engine.now;
        self.next_tick = now + TICK;
        self.slice = (self.slice + 1) % SLICES;
        let used = self.engine.pool.bytes() - self.engine.pool.free_bytes();
        self.engine.metrics.core.buffer_bytes.set(used as u64);
        let mut index = self.slice;
        while index < self.table.places() {
            if let Some(why) = self.overdue(index, now) {
                self.engine.metrics.core.timeouts.add(1);
                self.end(index, End::Ours(why));
            }
            index += SLICES;
        }
    }

    /// Why a connection must end now, if it must.
    fn overdue(&mut self, index: u32, now: Nanos) -> Option<&'static str> {
        let settings = Arc::clone(&self.engine.settings);
        let conn = self.table.get_mut(index)?;
        let waited = now.saturating_sub(conn.since);
        match conn.phase {
            Phase::Opening if waited > settings.handshake => return Some("no ICReq in time"),
            Phase::Connecting if waited > settings.handshake => return Some("no Connect in time"),
            Phase::Ending if waited > LINGER => return Some("the peer does not close"),
            _ => {}
        }
        if conn.peer_owes() && waited > settings.stuck {
            return Some("the peer is stuck: it neither sends what it owes nor takes replies");
        }
        let association = conn.association.as_ref()?;
        if std::mem::take(&mut conn.traffic) {
            association.controller.touch(now);
        }
        if association.qid == 0 && association.controller.expired(now) {
            return Some("no keep-alive in time");
        }
        None
    }

    /// While stopping: close what has nothing in flight; `true` when all are.
    fn stopped(&mut self) -> bool {
        let late = self.stop.is_some_and(|at| self.engine.now >= at);
        // With an admin queue its controller ends, and with that the I/O queues
        // on whichever core: it goes last.
        let queues = |n: &Neighbour| n.queues.load(Ordering::Acquire);
        let no_queues = self.neighbours.iter().all(|n| queues(n) == 0);
        let mut left = 0;
        for index in 0..self.table.places() {
            let Some(conn) = self.table.get_mut(index) else {
                continue;
            };
            let held = self.engine.held(conn);
            let idle = conn.request_count == held && conn.backlog.is_none();
            let is_queue = conn.qid() != 0;
            if late || (idle && (is_queue || no_queues)) {
                let _ = rustix::net::shutdown(&conn.socket, rustix::net::Shutdown::Both);
                self.close(index);
            } else {
                left += usize::from(is_queue);
            }
        }
        if let Some(me) = self.neighbours.get(self.engine.core) {
            me.queues.store(left, Ordering::Release);
        }
        // Orphans' buffers belong to the backends.
        self.table.len() == 0 && (late || !self.engine.backends.busy())
    }

    /// Nothing was done in this round.
    fn idle(&mut self) {
        let now = self.engine.now;
        let since = *self.idle_since.get_or_insert(now);
        if now.saturating_sub(since) < self.spin {
            std::hint::spin_loop();
            return;
        }
        self.engine.gate.idle(now);
        let wake = self.wake_at(now);
        if wake < now + NAP {
            return;
        }
        self.account_poll(now);
        if !self.engine.mailbox.sleep() {
            return;
        }
        self.watch_ring();
        let woken = self.poll(wake - now);
        self.engine.mailbox.awake();
        let slept = clock::now() - now;
        let metrics = &self.engine.metrics.core;
        metrics.sleeps.add(1);
        metrics.sleep_ns.add(slept);
        self.accounted = now + slept;
        if woken {
            // Work that comes soon after falling asleep is worth waiting for.
            let most = self.engine.settings.spin;
            self.spin = if slept < 2 * most {
                most
            } else {
                (self.spin / 2).max(most / 32)
            };
            self.idle_since = None;
        } else {
            // A timer: go back to sleep at once.
            self.idle_since = Some(now.saturating_sub(self.spin));
        }
    }

    fn account_poll(&mut self, now: Nanos) {
        let spent = now.saturating_sub(std::mem::replace(&mut self.accounted, now));
        self.engine.metrics.core.poll_ns.add(spent);
    }

    /// When to look again although nothing happens.
    fn wake_at(&self, now: Nanos) -> Nanos {
        let engine = &self.engine;
        let mut at = self.next_tick;
        for event in [
            engine.backends.next_event(),
            engine.gate.next_wakeup(now),
            self.stop.map(|_| now + MILLISECOND),
        ] {
            at = at.min(event.unwrap_or(Nanos::MAX));
        }
        if !engine.starved.is_empty() || !engine.want_buffer.is_empty() {
            at = at.min(now + 10 * MILLISECOND);
        }
        at
    }

    /// Let completions of the ring wake this core.
    fn watch_ring(&mut self) {
        if self.ring.is_none() {
            if let Some(fd) = self.engine.backends.ring_fd() {
                if self.poller.add_readable(fd, RING).is_ok() {
                    self.ring = Some(fd);
                }
            }
        }
    }
}

/// The core that the tenant's CPUs ask for, if it is not this one.
fn destination(conn: &Connection, neighbours: &[Neighbour], here: usize) -> Option<usize> {
    let association = conn.association.as_ref()?;
    let cpus = association.cpus.as_ref()?;
    let wanted = |n: &Neighbour| n.cpu.is_some_and(|cpu| cpus.contains(&cpu));
    if neighbours.get(here).is_some_and(wanted) {
        return None;
    }
    let count = neighbours.iter().filter(|n| wanted(n)).count();
    let nth = usize::from(association.qid).checked_rem(count)?;
    let mut there = neighbours.iter().enumerate().filter(|(_, n)| wanted(n));
    there.nth(nth).map(|(index, _)| index)
}
