// SPDX-License-Identifier: GPL-2.0-only
//! The device: commands in, completion times out.

use crate::die::{Die, ReadRule, Server};
use crate::ftl::{Counts, Ftl, Geometry, NoTime, Sink};
use crate::params::{Params, ParamsError};
use crate::rng::Rng;
use crate::{Nanos, PAGE};

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Read,
    Write,
    Flush,
    /// Deallocate: what was there costs garbage collection nothing any more.
    Trim,
}

/// The state a device starts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing was ever written: reads touch no flash.
    Empty,
    /// Filled once, in order.
    Sequential,
    /// Filled, then written at random until garbage collection is steady.
    Random,
}

/// What a device did since it was made or preconditioned.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    pub host_reads: u64,
    pub host_writes: u64,
    pub host_read_bytes: u64,
    pub host_write_bytes: u64,
    /// Written to flash for the host and for garbage collection.
    pub flash_write_bytes: u64,
    /// Superblocks of the model that were collected.
    pub gc_runs: u64,
    /// Erases of a block of one die.
    pub erases: u64,
    /// Time that all dies together spent, in nanoseconds.
    pub die_read_time: u64,
    pub die_write_time: u64,
    /// Table entries the model looked at: its own cost.
    pub steps: u64,
}

impl Stats {
    /// Flash writes per host write; 1 when nothing was written.
    pub fn write_amplification(&self) -> f64 {
        if self.host_write_bytes == 0 {
            return 1.0;
        }
        self.flash_write_bytes as f64 / self.host_write_bytes as f64
    }
}

/// The logical space is divided into so many regions, each of which has its
/// share of the model's pages: hot and cold regions stay what they are.
const REGIONS: u64 = 64;

/// Numbers that follow from the parameters.
#[derive(Clone, Debug)]
struct Timing {
    t_granule: Nanos,
    t_erase: Nanos,
    t_read: Nanos,
    t_transfer: Nanos,
    t_suspend: Option<Nanos>,
    committed: Nanos,
    /// Backlog of a die up to which a write need not wait.
    room: Nanos,
}

/// A flash device in virtual time.
#[derive(Clone, Debug)]
pub struct Device {
    params: Params,
    timing: Timing,
    ftl: Ftl,
    controller: Server,
    read_link: Server,
    write_link: Server,
    channels: Vec<Server>,
    dies: Vec<Die>,
    rng: Rng,
    stats: Stats,
    region_blocks: u64,
    region_pages: u64,
    /// Bytes trimmed since the last page of the model was.
    trimmed: u64,
    /// Pages of the model trimmed, by the number of a region's.
    trims: u64,
}

/// Dies that take the translation layer's work at a time.
struct Work<'a> {
    now: Nanos,
    dies: &'a mut [Die],
    timing: &'a Timing,
}

impl Sink for Work<'_> {
    #[inline]
    fn program(&mut self, die: u32) {
        if let Some(die) = self.dies.get_mut(die as usize) {
            die.add(self.now, self.timing.t_granule);
        }
    }

    #[inline]
    fn fetch(&mut self, die: u32) {
        if let Some(die) = self.dies.get_mut(die as usize) {
            die.add(self.now, self.timing.t_read);
        }
    }

    fn erase(&mut self, die: u32) {
        if let Some(die) = self.dies.get_mut(die as usize) {
            die.add(self.now, self.timing.t_erase);
        }
    }
}

/// Nanoseconds for so many bytes at so many bytes per second.
#[inline]
fn at_rate(bytes: u64, rate: u64) -> Nanos {
    bytes.saturating_mul(1_000_000_000) / rate
}

impl Device {
    /// A device that was never written to.
    ///
    /// # Errors
    /// Parameters that make no sense: see [`Params::check`].
    pub fn new(params: Params, seed: u64) -> Result<Device, ParamsError> {
        params.check()?;
        let dies = params.dies();
        let t_granule = params.t_granule();
        let buffered = params.write_buffer / u64::from(dies) / u64::from(PAGE);
        let region_pages = u64::from(params.model_pages) / REGIONS;
        let blocks = params.capacity / u64::from(PAGE);
        Ok(Device {
            timing: Timing {
                t_granule,
                t_erase: params.t_erase,
                t_read: params.t_read,
                t_transfer: params.t_transfer,
                t_suspend: params.t_suspend,
                committed: u64::from(params.committed - 1) * t_granule,
                room: buffered.max(1) * t_granule,
            },
            ftl: Ftl::new(&Device::geometry(&params)),
            controller: Server::default(),
            read_link: Server::default(),
            write_link: Server::default(),
            channels: vec![Server::default(); params.channels as usize],
            dies: vec![Die::default(); dies as usize],
            rng: Rng::new(seed),
            stats: Stats::default(),
            region_blocks: blocks.div_ceil(REGIONS).max(1),
            region_pages,
            trimmed: 0,
            trims: 0,
            params,
        })
    }

    fn geometry(params: &Params) -> Geometry {
        Geometry {
            pages: params.model_pages,
            dies: params.dies(),
            die_block_pages: params.block_pages.saturating_mul(params.unit_pages()),
            over_provisioning: params.over_provisioning,
        }
    }

    /// What the device is made of.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Bring the translation layer into a state, in no time; counters start
    /// again.
    pub fn precondition(&mut self, kind: Precondition) {
        self.ftl = Ftl::new(&Device::geometry(&self.params));
        let pages = self.ftl.pages();
        if kind != Precondition::Empty {
            for page in 0..pages {
                self.ftl.write(page, &mut NoTime);
            }
        }
        if kind == Precondition::Random {
            // Steady after about two capacities beyond the first collection.
            for _ in 0..3 * u64::from(pages) {
                let page = self.rng.below(pages.into()) as u32;
                self.ftl.write(page, &mut NoTime);
            }
        }
        self.ftl.counts = Counts::default();
        self.stats = Stats::default();
        for die in &mut self.dies {
            (die.busy_reads, die.busy_writes) = (0, 0);
        }
    }

    /// The page of the model that a 4 KiB block of the device shares.
    ///
    /// Neighbours have different pages as long as they are fewer than a region's,
    /// so that sequential stays sequential and random stays random.
    #[inline]
    fn page(&self, block: u64) -> u32 {
        let region = (block / self.region_blocks).min(REGIONS - 1);
        (region * self.region_pages + block % self.region_pages) as u32
    }

    /// Submit a command at `now`; says when it completes, which is never before
    /// `now`. An offset beyond the capacity wraps around.
    ///
    /// The cost is O(1) per 4 KiB, amortised over garbage collection; a flush
    /// without power-loss protection looks at each die, a trim at each page of
    /// the model at most.
    pub fn submit(&mut self, now: Nanos, op: Op, offset: u64, bytes: u32) -> Nanos {
        let done = match op {
            Op::Read => self.read(now, offset, bytes),
            Op::Write => self.write(now, offset, bytes),
            Op::Flush => self.flush(now),
            Op::Trim => self.trim(now, offset, bytes.into()),
        };
        now.saturating_add(self.params.t_fixed).saturating_add(done)
    }

    /// The 4 KiB blocks that a range touches.
    #[inline]
    fn blocks(&self, offset: u64, bytes: u64) -> std::ops::Range<u64> {
        let offset = offset % self.params.capacity;
        let first = offset / u64::from(PAGE);
        let end = (offset + bytes).div_ceil(u64::from(PAGE));
        first..end.max(first + 1)
    }

    fn read(&mut self, now: Nanos, offset: u64, bytes: u32) -> Nanos {
        self.stats.host_reads += 1;
        self.stats.host_read_bytes += u64::from(bytes);
        let command = self.controller.serve(now, self.params.t_command);
        let (unit_pages, dies) = (self.params.unit_pages(), self.params.dies());
        let (mut unit, mut die_wait, mut slowest) = (None, 0, 0);
        for block in self.blocks(offset, bytes.into()) {
            self.stats.steps += 1;
            let Some(at) = self.ftl.find(self.page(block)) else {
                continue;
            };
            // Neighbours are read in one go, as one page of all planes. Parts of
            // programs are spread more finely, page by page: where a page is read
            // is not quite where its program was.
            let group = at / unit_pages;
            if unit != Some(group) {
                unit = Some(group);
                die_wait = self.read_die(now, group % dies);
            }
            let channel = group as usize % self.channels.len().max(1);
            let transfer = match self.channels.get_mut(channel) {
                Some(channel) => channel.serve(now, self.timing.t_transfer),
                None => 0,
            };
            slowest = slowest.max(die_wait + transfer);
        }
        let link = at_rate(bytes.into(), self.params.read_bandwidth);
        command + slowest + self.read_link.serve(now, link)
    }

    #[inline]
    fn read_die(&mut self, now: Nanos, index: u32) -> Nanos {
        let Some(die) = self.dies.get_mut(index as usize) else {
            return 0;
        };
        let backlog = die.settle(now);
        // The fuller its share of the buffer, the more often a die programs
        // before it reads; always when writes wait for room.
        let half = self.timing.room / 2;
        let yields = backlog > half && half + self.rng.below(half.max(1)) < backlog;
        let rule = ReadRule {
            t_read: self.timing.t_read,
            t_operation: self.timing.t_granule,
            t_suspend: self.timing.t_suspend,
            committed: self.timing.committed,
            yields,
        };
        die.read(now, &rule)
    }

    fn write(&mut self, now: Nanos, offset: u64, bytes: u32) -> Nanos {
        self.stats.host_writes += 1;
        self.stats.host_write_bytes += u64::from(bytes);
        let command = self.controller.serve(now, self.params.t_command);
        let mut slowest = 0;
        for block in self.blocks(offset, bytes.into()) {
            let page = self.page(block);
            let mut work = Work {
                now,
                dies: &mut self.dies,
                timing: &self.timing,
            };
            let at = self.ftl.write(page, &mut work);
            let die = self.ftl.die(at) as usize;
            if let Some(die) = self.dies.get_mut(die) {
                let wait = die.settle(now).saturating_sub(self.timing.room);
                slowest = slowest.max(wait);
            }
        }
        let link = at_rate(bytes.into(), self.params.write_bandwidth);
        command + slowest + self.write_link.serve(now, link)
    }

    fn flush(&mut self, now: Nanos) -> Nanos {
        let command = self.controller.serve(now, self.params.t_command);
        if self.params.power_loss_protection {
            return command;
        }
        let backlogs = self.dies.iter_mut().map(|die| die.settle(now));
        command + backlogs.max().unwrap_or(0)
    }

    /// A page of the model stands for many of the device's, so one is forgotten
    /// for each so many bytes.
    fn trim(&mut self, now: Nanos, offset: u64, bytes: u64) -> Nanos {
        let command = self.controller.serve(now, self.params.t_command);
        let stands_for = self.region_blocks * u64::from(PAGE) / self.region_pages.max(1);
        let blocks = self.blocks(offset, bytes);
        self.trimmed += (blocks.end - blocks.start) * u64::from(PAGE);
        let due = (self.trimmed / stands_for.max(1)).min(self.ftl.pages().into());
        self.trimmed %= stands_for.max(1);
        // Spread over the range: it may cover several regions.
        let step = ((blocks.end - blocks.start) / due.max(1)).max(1);
        for i in 0..due {
            self.stats.steps += 1;
            let page = self.trim_page(blocks.start + i * step);
            self.ftl.trim(page);
        }
        command
    }

    /// The region of a block, but its pages in turn: when all of a region is
    /// trimmed, all of its pages are.
    fn trim_page(&mut self, block: u64) -> u32 {
        let region = (block / self.region_blocks).min(REGIONS - 1);
        self.trims = (self.trims + 1) % self.region_pages.max(1);
        (region * self.region_pages + self.trims) as u32
    }

    /// What the device did.
    pub fn stats(&self) -> Stats {
        let counts = self.ftl.counts;
        Stats {
            flash_write_bytes: (counts.host + counts.moved) * u64::from(PAGE),
            gc_runs: counts.victims,
            erases: counts.erases,
            die_read_time: self.dies.iter().map(|d| d.busy_reads).sum(),
            die_write_time: self.dies.iter().map(|d| d.busy_writes).sum(),
            steps: self.stats.steps + counts.steps,
            ..self.stats
        }
    }

    /// Share of `span` nanoseconds that the dies were busy on average, by what
    /// [`Device::stats`] says now against `before`.
    pub fn utilisation(&self, before: &Stats, span: Nanos) -> f64 {
        let now = self.stats();
        let busy = |s: &Stats| s.die_read_time + s.die_write_time;
        let all = span as f64 * self.dies.len() as f64;
        if all == 0.0 {
            return 0.0;
        }
        (busy(&now) - busy(before)) as f64 / all
    }
}
