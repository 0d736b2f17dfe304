// SPDX-License-Identifier: GPL-2.0-only
//! What is looked at while time goes by: every 100 ms the device's latency, for
//! the scheduler's feedback; every second whether promises were kept; every ten
//! seconds the latencies that metrics and `rflash tenant explain` show.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use nvme_wire::tenant::Class;
use qos::TenantId;

use super::tenants::{Entry, Tenants};
use crate::metrics::{Registry, Snapshot, TenantSnapshot, TenantStats};

pub type Nanos = u64;

/// Between two looks.
pub const TICK: Nanos = 100_000_000;
const SECOND: u64 = 10;
const LONG: u64 = 100;
/// A tenant that asks for more than it was promised has no claim; so much more
/// is within what a second's edges can move, percent.
const TOLERANCE_PCT: u64 = 5;
/// Fewer reads than these have no 95th percentile to speak of.
const READS_MIN: u64 = 20;

/// Latencies of a stage in nanoseconds, over the last ten seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantiles {
    pub count: u64,
    pub mean: Option<u64>,
    pub p50: Option<u64>,
    pub p95: Option<u64>,
    pub p99: Option<u64>,
    pub max: Option<u64>,
}

impl Quantiles {
    fn of(snapshot: &Snapshot) -> Quantiles {
        let count = snapshot.count();
        Quantiles {
            count,
            mean: snapshot.mean_ns(),
            p50: snapshot.quantile(0.50),
            p95: snapshot.quantile(0.95),
            p99: snapshot.quantile(0.99),
            max: (count > 0).then_some(snapshot.max_ns),
        }
    }
}

/// The last ten seconds of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Length in nanoseconds; 0: there was none yet.
    pub length: Nanos,
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub wait: Quantiles,
    pub device: Quantiles,
    pub write_device: Quantiles,
    pub read: Quantiles,
    pub write: Quantiles,
}

/// One-second windows of a latency-critical tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    /// Those in which it had a claim.
    pub windows: u64,
    /// Those of them in which its reads were late.
    pub missed: u64,
    /// Those in which it asked for more than it was promised.
    pub over: u64,
}

/// What is remembered of a tenant.
#[derive(Default)]
struct Memory {
    /// Whose it is: an index may be given to another.
    name: String,
    seen: u64,
    device: Snapshot,
    second: Second,
    long: Option<(Nanos, TenantSnapshot)>,
    window: Window,
    promises: Promises,
}

#[derive(Default)]
struct Second {
    reads: u64,
    writes: u64,
    service: Snapshot,
}

type Key = (usize, u32);

/// The looks, and what they saw.
pub struct Watch {
    tenants: Arc<Tenants>,
    registry: Arc<Registry>,
    memory: Mutex<HashMap<Key, Memory>>,
}

impl Watch {
    pub fn new(tenants: Arc<Tenants>, registry: Arc<Registry>) -> Watch {
        Watch {
            tenants,
            registry,
            memory: Mutex::default(),
        }
    }

    /// What was seen of a tenant.
    pub fn of(&self, entry: &Entry) -> (Window, Promises) {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let found = memory.get(&(entry.device, entry.id));
        found
            .filter(|m| m.name == entry.name)
            .map_or_else(Default::default, |m| (m.window, m.promises))
    }

    /// One look; `tick` counts them. To be called every [`TICK`].
    pub fn look(&self, now: Nanos, tick: u64) {
        let entries = self.tenants.list();
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let mut observed: HashMap<usize, Vec<(TenantId, u32, u64)>> = HashMap::new();
        for entry in &entries {
            let key = (entry.device, entry.id);
            let m = memory.entry(key).or_default();
            if m.name != entry.name {
                *m = self.begin(entry, now);
            }
            if matches!(entry.class, Class::LatencyCritical { .. }) {
                if let Some(seen) = self.latency(entry, m) {
                    observed.entry(entry.device).or_default().push(seen);
                }
                if tick % SECOND == 0 {
                    self.second(entry, m);
                }
            }
            if tick % LONG == 0 {
                self.long(entry, m, now);
            }
        }
        if tick % LONG == 0 {
            memory.retain(|key, _| entries.iter().any(|e| (e.device, e.id) == *key));
        }
        drop(memory);
        for (device, observed) in observed {
            self.feed_back(now, device, &observed);
        }
    }

    fn begin(&self, entry: &Entry, now: Nanos) -> Memory {
        let (device, id) = (entry.device, entry.id as usize);
        let sum = |of: fn(&TenantStats) -> u64| self.registry.sum(device, id, of);
        Memory {
            name: entry.name.clone(),
            seen: sum(|s| s.reads.get()),
            device: self.registry.histogram(device, id, |s| &s.device),
            second: Second {
                reads: sum(|s| s.reads.get()),
                writes: sum(|s| s.writes.get()),
                service: self.registry.histogram(device, id, |s| &s.service),
            },
            long: Some((now, self.registry.tenant(device, id))),
            ..Memory::default()
        }
    }

    /// p95 of the device since the last look, in microseconds, and of how many
    /// reads. A tenant that has not read costs a few loads.
    fn latency(&self, entry: &Entry, m: &mut Memory) -> Option<(TenantId, u32, u64)> {
        let (device, id) = (entry.device, entry.id as usize);
        let reads = self.registry.sum(device, id, |s| s.reads.get());
        if reads == m.seen {
            return None;
        }
        m.seen = reads;
        let all = self.registry.histogram(device, id, |s| &s.device);
        let passed = all.since(&m.device);
        m.device = all;
        let p95 = passed.quantile(0.95)?.div_ceil(1000);
        let p95 = u32::try_from(p95).unwrap_or(u32::MAX);
        Some((TenantId(entry.id), p95, passed.count()))
    }

    fn feed_back(&self, now: Nanos, device: usize, observed: &[(TenantId, u32, u64)]) {
        let advice = self
            .tenants
            .with_control(device, |c| c.feedback(now, observed))
            .unwrap_or_default();
        let name = self.tenants.device_name(device);
        for advice in advice {
            match advice {
                qos::Advice::Recalibrate { .. } => {
                    log::warn!(device = name.as_str(); "{advice}");
                }
                _ => log::info!(device = name.as_str(); "{advice}"),
            }
        }
    }

    /// Was the promise kept in the last second?
    fn second(&self, entry: &Entry, m: &mut Memory) {
        let (device, id) = (entry.device, entry.id as usize);
        let sum = |of: fn(&TenantStats) -> u64| self.registry.sum(device, id, of);
        let (all_reads, all_writes) = (sum(|s| s.reads.get()), sum(|s| s.writes.get()));
        let reads = all_reads.wrapping_sub(m.second.reads);
        let writes = all_writes.wrapping_sub(m.second.writes);
        if reads == 0 && writes == 0 {
            return;
        }
        let service = self.registry.histogram(device, id, |s| &s.service);
        let passed = service.since(&m.second.service);
        m.second = Second {
            reads: all_reads,
            writes: all_writes,
            service,
        };
        let Class::LatencyCritical {
            p95_us,
            iops,
            read_pct,
            ..
        } = entry.class
        else {
            return;
        };
        let all = reads + writes;
        let most = u64::from(iops) * (100 + TOLERANCE_PCT) / 100;
        let few_reads = reads * 100 < all * u64::from(read_pct.saturating_sub(5));
        if all > most || few_reads {
            m.promises.over += 1;
            return;
        }
        if reads < READS_MIN {
            return;
        }
        m.promises.windows += 1;
        let p95 = passed.quantile(0.95).unwrap_or(0);
        if p95 > u64::from(p95_us) * 1000 {
            m.promises.missed += 1;
            log::warn!(
                tenant = entry.name.as_str(), p95_us = p95 / 1000, promised_us = p95_us, iops = all;
                "a promise was not kept for a second"
            );
        }
    }

    fn long(&self, entry: &Entry, m: &mut Memory, now: Nanos) {
        let all = self.registry.tenant(entry.device, entry.id as usize);
        let passed = match &m.long {
            Some((_, before)) => all.since(before),
            None => all.clone(),
        };
        let since = m.long.as_ref().map_or(now, |(then, _)| *then);
        m.window = Window {
            length: now.saturating_sub(since),
            reads: passed.reads,
            writes: passed.writes,
            read_bytes: passed.read_bytes,
            write_bytes: passed.write_bytes,
            wait: Quantiles::of(&passed.wait),
            device: Quantiles::of(&passed.device),
            write_device: Quantiles::of(&passed.write_device),
            read: Quantiles::of(&passed.service),
            write: Quantiles::of(&passed.write_service),
        };
        m.long = Some((now, all));
    }

    /// The window that is not full yet, for a tenant that has none.
    pub fn fresh(&self, entry: &Entry, now: Nanos) -> Window {
        let (window, _) = self.of(entry);
        if window.length > 0 {
            return window;
        }
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(m) = memory.get_mut(&(entry.device, entry.id)) else {
            return window;
        };
        let long = m.long.clone();
        self.long(entry, m, now);
        let fresh = std::mem::take(&mut m.window);
        m.long = long;
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Kind, Stages};
    use crate::service::tenants::Device;
    use crate::subsystem::TenantControl;
    use qos::DeviceModel;

    const NQN: &str = "nqn.2024-01.io.example:s";

    fn watch() -> (Watch, Entry, Arc<Registry>) {
        let registry = Arc::new(Registry::new(1, 1, 4));
        let device = Device {
            name: "d".into(),
            model: DeviceModel::preset("million"),
        };
        let tenants = Tenants::new(vec![device], 4, Arc::clone(&registry)).unwrap();
        let tenants = Arc::new(tenants);
        tenants
            .apply(&crate::service::tenants::tests::bare_plan())
            .unwrap();
        let class = Class::LatencyCritical {
            p95_us: 500,
            iops: 1000,
            read_pct: 90,
            block: 4096,
        };
        let entry = tenants.add("t", NQN, None, class).unwrap();
        assert!(tenants.of("nqn.2024-01.io.example:h", NQN).is_ok());
        (Watch::new(tenants, Arc::clone(&registry)), entry, registry)
    }

    fn serve(registry: &Registry, kind: Kind, n: u64, us: u64) {
        let stages = Stages {
            wait: 0,
            device: us * 900,
            service: us * 1000,
        };
        let core = registry.core(0).unwrap();
        core.tenant(0, 0).unwrap().done_n(kind, n, n * 4096, stages);
    }

    #[test]
    fn promises_by_the_second() {
        let (watch, entry, registry) = watch();
        watch.look(0, 1);
        // In time, late, too many, too few reads, nothing.
        for (tick, reads, writes, us) in [
            (10, 900, 10, 400),
            (20, 900, 10, 600),
            (30, 2000, 10, 600),
            (40, 100, 100, 600),
            (50, 0, 0, 0),
        ] {
            serve(&registry, Kind::Read, reads, us);
            serve(&registry, Kind::Write, writes, us);
            watch.look(tick * TICK, tick);
        }
        let want = Promises {
            windows: 2,
            missed: 1,
            over: 2,
        };
        assert_eq!(watch.of(&entry).1, want);
    }

    #[test]
    fn ten_seconds() {
        let (watch, entry, registry) = watch();
        watch.look(0, 1);
        serve(&registry, Kind::Read, 50, 100);
        let fresh = watch.fresh(&entry, 5 * TICK);
        assert_eq!((fresh.reads, fresh.length), (50, 5 * TICK));
        serve(&registry, Kind::Write, 7, 100);
        watch.look(100 * TICK, 100);
        let (window, _) = watch.of(&entry);
        assert_eq!((window.reads, window.writes), (50, 7));
        assert_eq!(window.read.count, 50);
        let p99 = window.read.p99.unwrap();
        assert!((100_000..104_000).contains(&p99), "{p99}");
        watch.look(200 * TICK, 200);
        assert_eq!(watch.of(&entry).0.reads, 0);
    }
}
