// SPDX-License-Identifier: GPL-2.0-only
//! One thread: its connections, and the loop that keeps them busy.
//!
//! It asks its sockets without a pause as long as something comes, since a
//! wake-up costs more than most I/O; after [`SPIN`] of silence it sleeps.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use nvme_host::{Done, Events, HostError, IoQueue, SCRATCH_LEN};
use nvme_wire::status::Status;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};

use super::job::Job;
use super::pace::{Addresses, Random, Starts};
use super::tally::Tally;
use super::verify::Verifier;

/// Silence after which a thread sleeps.
const SPIN: u64 = 200_000;
/// A thread wakes up so much before an intended start, and does not sleep for
/// less than twice that.
const EARLY: u64 = 150_000;
/// Longest sleep.
const NAP: u64 = 100_000_000;
/// A target that answers nothing for so long is given up.
const STUCK: u64 = 30_000_000_000;
/// Up to so many sockets are asked directly; more by epoll.
const DIRECT: usize = 8;
/// Time for what is outstanding to end.
const DRAIN: u64 = 5_000_000_000;
/// A second of the run's clock, ns.
const WINDOW: u64 = 1_000_000_000;

const WRITE: u64 = 1 << 63;

/// One connection.
pub struct Line {
    pub queue: IoQueue,
    pub addresses: Addresses,
    pub verifier: Option<Verifier>,
    /// Registered for writability, too.
    armed: bool,
    /// Commands wait to be sent.
    dirty: bool,
}

impl Line {
    pub fn new(queue: IoQueue, addresses: Addresses, verifier: Option<Verifier>) -> Line {
        Line {
            queue,
            addresses,
            verifier,
            armed: false,
            dirty: false,
        }
    }
}

/// What transfers mean to the namespace.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    pub nsid: u32,
    /// Bytes of a block.
    pub block: u32,
}

/// Why a thread gave up.
#[derive(Debug)]
pub enum Failure {
    Host(HostError),
    Status {
        write: bool,
        status: Status,
    },
    /// What was read is not what was written.
    Wrong(String),
    /// No answer for [`STUCK`].
    Stuck,
    System(&'static str, rustix::io::Errno),
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        Failure::Host(error)
    }
}

/// What a thread did in one second; the seconds of all threads are the same.
pub struct Window {
    pub second: u64,
    pub tally: Tally,
}

/// What is known at the end.
#[derive(Debug, Default)]
pub struct Summary {
    /// Intended starts that were due and had not begun at the end.
    pub behind: u64,
    /// Units that were read and compared after the run.
    pub verified: u64,
}

pub struct Worker<'a> {
    pub job: &'a Job,
    pub geometry: Geometry,
    pub lines: Vec<Line>,
    pub cpu: Option<usize>,
    /// Which thread of how many.
    pub index: usize,
    pub threads: usize,
    /// All connections, of all threads.
    pub connections: usize,
    pub windows: Sender<Window>,
    pub stop: &'a AtomicBool,
}

struct State<'a> {
    worker: Worker<'a>,
    start: Instant,
    epoll: OwnedFd,
    scratch: Vec<u8>,
    random: Random,
    starts: Option<Starts>,
    blocks: u32,
    tally: Tally,
    /// When counting begins.
    begin: u64,
    failure: Option<Failure>,
    /// The line the next start goes to.
    turn: usize,
    last_done: u64,
}

/// Notes what a receive brought.
struct Sink<'a> {
    start: Instant,
    /// Read once per receive; 0: not yet.
    now: u64,
    begin: u64,
    tally: &'a mut Tally,
    verifier: Option<&'a mut Verifier>,
    failure: &'a mut Option<Failure>,
}

fn since(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

impl Events for Sink<'_> {
    #[inline]
    fn data(&mut self, slot: u16, offset: u32, bytes: &[u8]) {
        if let Some(verifier) = &mut self.verifier {
            verifier.data(slot, offset, bytes);
        }
    }

    #[inline]
    fn done(&mut self, done: Done) {
        if self.now == 0 {
            self.now = since(self.start);
        }
        let write = done.user & WRITE != 0;
        if !done.status.is_success() {
            let status = done.status;
            self.failure
                .get_or_insert(Failure::Status { write, status });
            return;
        }
        if let Some(verifier) = &mut self.verifier {
            if let Err(wrong) = verifier.end(done.slot, write) {
                self.failure.get_or_insert(Failure::Wrong(wrong));
            }
        }
        if self.now >= self.begin {
            let intended = done.user & !WRITE;
            self.tally.record(write, self.now.saturating_sub(intended));
        }
    }
}

impl<'a> Worker<'a> {
    /// Run from `start` on; returns when the time is over or `stop` is set.
    pub fn run(self, start: Instant) -> Result<Summary, Failure> {
        self.pin()?;
        let system = |what| move |error| Failure::System(what, error);
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("epoll cannot be used"))?;
        for (index, line) in self.lines.iter().enumerate() {
            let data = EventData::new_u64(index as u64);
            epoll::add(&epoll, &line.queue, data, EventFlags::IN)
                .map_err(system("epoll cannot be used"))?;
        }
        let job = self.job;
        let share = self.lines.len() as f64 / self.connections.max(1) as f64;
        let starts = job
            .rate
            .map(|rate| Starts::new(0, rate * share, self.index, self.threads));
        let seed = start.elapsed().as_nanos() as u64 ^ u64::from(std::process::id());
        let mut state = State {
            start,
            epoll,
            scratch: vec![0; SCRATCH_LEN.max(job.bytes as usize / 4)],
            random: Random::new(seed.wrapping_add(self.index as u64)),
            starts,
            blocks: job.bytes / self.geometry.block,
            tally: Tally::default(),
            begin: job.warmup.as_nanos() as u64,
            failure: None,
            turn: 0,
            last_done: 0,
            worker: self,
        };
        while Instant::now() < start {
            std::thread::sleep(start.saturating_duration_since(Instant::now()));
        }
        let end = state.begin + job.time.as_nanos() as u64;
        state.measure(end)?;
        let mut summary = Summary::default();
        if let Some(starts) = &state.starts {
            summary.behind = starts.behind(end.min(since(start)));
        }
        state.starts = None;
        // A run that was told to stop is not to wait.
        if !state.worker.stop.load(Ordering::Relaxed) {
            state.drain()?;
            if job.verify {
                summary.verified = state.sweep()?;
            }
        }
        Ok(summary)
    }

    fn pin(&self) -> Result<(), Failure> {
        if let Some(cpu) = self.cpu {
            let mut set = CpuSet::new();
            set.set(cpu);
            sched_setaffinity(None, &set)
                .map_err(|e| Failure::System("the CPUs of --cpu cannot be used", e))?;
        }
        // Without it the kernel adds 50 us to each sleep; a failure costs that.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        Ok(())
    }
}

impl State<'_> {
    fn measure(&mut self, end: u64) -> Result<(), Failure> {
        let mut window_end = self.begin + WINDOW;
        let mut second = 0;
        let mut quiet_since = 0;
        let closed = self.starts.is_none();
        if closed {
            self.start_all(0)?;
        }
        loop {
            let now = since(self.start);
            if now >= window_end || now >= end || self.worker.stop.load(Ordering::Relaxed) {
                self.roll(second);
                second += 1;
                window_end += WINDOW;
                if now >= end || self.worker.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
            let mut progress = self.receive_all(now, closed)?;
            let mut blocked = false;
            if !closed {
                let (started, full) = self.start_due(now)?;
                progress |= started;
                blocked = full;
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if progress {
                quiet_since = now;
            } else if now.saturating_sub(quiet_since) > SPIN {
                self.check_alive(now)?;
                self.sleep(now, window_end.min(end), blocked)?;
            }
        }
    }

    fn roll(&mut self, second: u64) {
        let tally = std::mem::take(&mut self.tally);
        // Who listens has gone only when the run is over.
        let _ = self.worker.windows.send(Window { second, tally });
    }

    fn check_alive(&mut self, now: u64) -> Result<(), Failure> {
        let outstanding = self.worker.lines.iter().any(|l| l.queue.outstanding() > 0);
        if !outstanding {
            self.last_done = now;
        } else if now.saturating_sub(self.last_done) > STUCK {
            return Err(Failure::Stuck);
        }
        Ok(())
    }

    /// Receive on all lines that may have something; whether any had.
    fn receive_all(&mut self, now: u64, refill: bool) -> Result<bool, Failure> {
        let mut progress = false;
        if self.worker.lines.len() <= DIRECT {
            for index in 0..self.worker.lines.len() {
                progress |= self.receive(index, now, refill)?;
            }
        } else {
            let mut events = [epoll::Event {
                flags: EventFlags::empty(),
                data: EventData::new_u64(0),
            }; 128];
            let now_and_no_later = Timespec::default();
            let ready = match epoll::wait(&self.epoll, &mut events, Some(&now_and_no_later)) {
                Ok(n) => n,
                Err(rustix::io::Errno::INTR) => 0,
                Err(e) => return Err(Failure::System("epoll cannot be used", e)),
            };
            for event in events.iter().take(ready) {
                let data = event.data;
                progress |= self.receive(data.u64() as usize, now, refill)?;
            }
        }
        if progress {
            self.last_done = now;
        }
        Ok(progress)
    }

    /// Receive on one line and, in a closed loop, start what takes the place of
    /// what ended.
    #[inline]
    fn receive(&mut self, index: usize, now: u64, refill: bool) -> Result<bool, Failure> {
        let Some(line) = self.worker.lines.get_mut(index) else {
            return Ok(false);
        };
        if line.queue.outstanding() == 0 && !line.queue.wants_send() {
            return Ok(false);
        }
        let mut sink = Sink {
            start: self.start,
            now: 0,
            begin: self.begin,
            tally: &mut self.tally,
            verifier: line.verifier.as_mut(),
            failure: &mut self.failure,
        };
        let got = line.queue.receive(&mut self.scratch, &mut sink)?;
        let at = if sink.now == 0 { now } else { sink.now };
        if got > 0 && refill && self.failure.is_none() {
            self.fill(index, at);
        }
        self.flush(index)?;
        Ok(got > 0)
    }

    /// Start as many commands as the line takes.
    fn fill(&mut self, index: usize, now: u64) {
        while self.start_one(index, now) {}
    }

    fn start_all(&mut self, now: u64) -> Result<(), Failure> {
        for index in 0..self.worker.lines.len() {
            self.fill(index, now);
            self.flush(index)?;
        }
        Ok(())
    }

    /// Start what is due, line by line in turn. Whether anything was started,
    /// and whether something due found no room.
    fn start_due(&mut self, now: u64) -> Result<(bool, bool), Failure> {
        let lines = self.worker.lines.len();
        let mut started = false;
        let mut full = 0;
        while let Some(intended) = self.starts.as_ref().map(Starts::peek) {
            if intended > now || full == lines {
                break;
            }
            let index = self.turn;
            self.turn = if index + 1 >= lines { 0 } else { index + 1 };
            if !self.start_one(index, intended) {
                full += 1;
                continue;
            }
            full = 0;
            started = true;
            if let Some(starts) = &mut self.starts {
                starts.take();
            }
        }
        if started {
            for index in 0..lines {
                if self.worker.lines.get(index).is_some_and(|l| l.dirty) {
                    self.flush(index)?;
                }
            }
        }
        Ok((started, full == lines))
    }

    /// Queue one command; `intended` is when it should have begun.
    #[inline]
    fn start_one(&mut self, index: usize, intended: u64) -> bool {
        let job = self.worker.job;
        let Some(line) = self.worker.lines.get_mut(index) else {
            return false;
        };
        let Some(slot) = line.queue.next_slot() else {
            return false;
        };
        let write = match job.read_pct {
            100 => false,
            0 => true,
            pct => self.random.below(100) >= pct.into(),
        };
        let mut unit = line.addresses.next(&mut self.random);
        if let Some(verifier) = &mut line.verifier {
            let Some(free) = verifier.choose(unit) else {
                return false;
            };
            unit = free;
            let buffer = write.then(|| line.queue.buffer_mut(slot));
            verifier.begin(slot, unit, buffer);
        }
        line.dirty = true;
        let lba = unit * u64::from(self.blocks);
        let nsid = self.worker.geometry.nsid;
        if write {
            let user = intended | WRITE;
            line.queue
                .write(user, nsid, lba, self.blocks, job.bytes, false)
        } else {
            line.queue.read(intended, nsid, lba, self.blocks, job.bytes)
        }
    }

    /// Send what waits; what the socket does not take waits for its turn.
    #[inline]
    fn flush(&mut self, index: usize) -> Result<(), Failure> {
        let Some(line) = self.worker.lines.get_mut(index) else {
            return Ok(());
        };
        line.dirty = false;
        if !line.queue.wants_send() && !line.armed {
            return Ok(());
        }
        let all = line.queue.send()?;
        if all == line.armed {
            line.armed = !all;
            let flags = match line.armed {
                true => EventFlags::IN | EventFlags::OUT,
                false => EventFlags::IN,
            };
            let data = EventData::new_u64(index as u64);
            epoll::modify(&self.epoll, &line.queue, data, flags)
                .map_err(|e| Failure::System("epoll cannot be used", e))?;
        }
        Ok(())
    }

    /// Sleep until something comes, the next start or the end of the window.
    fn sleep(&mut self, now: u64, until: u64, blocked: bool) -> Result<(), Failure> {
        let mut until = until.min(now + NAP);
        if let Some(starts) = self.starts.as_ref().filter(|_| !blocked) {
            until = until.min(starts.peek().saturating_sub(EARLY));
        }
        let Some(ns) = until.checked_sub(now).filter(|ns| *ns > EARLY) else {
            return Ok(());
        };
        let time = Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        };
        match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(Failure::System("poll cannot be used", e)),
        }
    }

    /// Let what is outstanding end; it is not counted any more.
    fn drain(&mut self) -> Result<(), Failure> {
        self.begin = u64::MAX;
        let end = since(self.start) + DRAIN;
        while self.worker.lines.iter().any(|l| l.queue.outstanding() > 0) {
            let now = since(self.start);
            if now > end {
                return Err(Failure::Stuck);
            }
            if !self.receive_all(now, false)? {
                self.sleep(now, now + 2 * EARLY, true)?;
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Read everything that was written once more, and compare.
    fn sweep(&mut self) -> Result<u64, Failure> {
        let mut units = 0;
        loop {
            let mut more = false;
            for index in 0..self.worker.lines.len() {
                more |= self.sweep_line(index)?;
            }
            self.drain()?;
            if !more {
                break;
            }
        }
        for line in &self.worker.lines {
            units += line.verifier.as_ref().map_or(0, Verifier::written);
        }
        Ok(units)
    }

    /// Start reading the next units of a line; whether there were any.
    fn sweep_line(&mut self, index: usize) -> Result<bool, Failure> {
        let job = self.worker.job;
        let nsid = self.worker.geometry.nsid;
        let mut any = false;
        if let Some(line) = self.worker.lines.get_mut(index) {
            while let (Some(slot), Some(verifier)) =
                (line.queue.next_slot(), line.verifier.as_mut())
            {
                let Some(unit) = verifier.sweep() else {
                    break;
                };
                verifier.begin(slot, unit, None);
                let lba = unit * u64::from(self.blocks);
                any |= line.queue.read(0, nsid, lba, self.blocks, job.bytes);
            }
        }
        self.flush(index)?;
        Ok(any)
    }
}

/// For the clock of a run: a moment soon enough for all threads to be ready.
pub fn soon() -> Instant {
    Instant::now() + Duration::from_millis(20)
}
