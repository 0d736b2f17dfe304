// SPDX-License-Identifier: GPL-2.0-only
//! Where all the numbers are: by core, and in a core by device and tenant.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::histogram::{Histogram, Snapshot};
use super::stats::{CoreStats, TenantStats};

/// The tenants of a device.
type Row = Box<[OnceLock<Box<TenantStats>>]>;

/// The numbers of one core, written by its thread alone.
#[derive(Debug)]
pub struct CoreMetrics {
    pub core: CoreStats,
    /// Of each device a row of tenants. What no request came for has no memory.
    tenants: Box<[OnceLock<Row>]>,
    /// Length of a row.
    most: usize,
}

impl CoreMetrics {
    fn new(devices: usize, tenants: usize) -> CoreMetrics {
        CoreMetrics {
            core: CoreStats::default(),
            tenants: (0..devices).map(|_| OnceLock::new()).collect(),
            most: tenants,
        }
    }

    /// The numbers of a tenant of a device, by their indices; made at the first
    /// call (40 KiB). Nothing when there is no such index.
    #[inline]
    pub fn tenant(&self, device: usize, tenant: usize) -> Option<&TenantStats> {
        let row = self.tenants.get(device)?;
        let row = row.get_or_init(|| (0..self.most).map(|_| OnceLock::new()).collect());
        Some(row.get(tenant)?.get_or_init(Box::default))
    }

    /// The same for a reader: nothing is made.
    fn seen(&self, device: usize, tenant: usize) -> Option<&TenantStats> {
        let row = self.tenants.get(device)?.get()?;
        row.get(tenant)?.get().map(Box::as_ref)
    }
}

/// A tenant's numbers, all cores together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantSnapshot {
    pub reads: u64,
    pub writes: u64,
    pub others: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub errors: u64,
    pub wait: Snapshot,
    pub device: Snapshot,
    pub write_device: Snapshot,
    pub service: Snapshot,
    pub write_service: Snapshot,
}

impl TenantSnapshot {
    fn add(&mut self, stats: &TenantStats) {
        for (to, from) in [
            (&mut self.reads, &stats.reads),
            (&mut self.writes, &stats.writes),
            (&mut self.others, &stats.others),
            (&mut self.read_bytes, &stats.read_bytes),
            (&mut self.write_bytes, &stats.write_bytes),
            (&mut self.errors, &stats.errors),
        ] {
            *to = to.wrapping_add(from.get());
        }
        stats.wait.merge_into(&mut self.wait);
        stats.device.merge_into(&mut self.device);
        stats.write_device.merge_into(&mut self.write_device);
        stats.service.merge_into(&mut self.service);
        stats.write_service.merge_into(&mut self.write_service);
    }

    /// What was counted since `before`, an earlier snapshot of the same tenant.
    pub fn since(&self, before: &TenantSnapshot) -> TenantSnapshot {
        TenantSnapshot {
            reads: self.reads.wrapping_sub(before.reads),
            writes: self.writes.wrapping_sub(before.writes),
            others: self.others.wrapping_sub(before.others),
            read_bytes: self.read_bytes.wrapping_sub(before.read_bytes),
            write_bytes: self.write_bytes.wrapping_sub(before.write_bytes),
            errors: self.errors.wrapping_sub(before.errors),
            wait: self.wait.since(&before.wait),
            device: self.device.since(&before.device),
            write_device: self.write_device.since(&before.write_device),
            service: self.service.since(&before.service),
            write_service: self.write_service.since(&before.write_service),
        }
    }
}

/// All cores. Cores write, whoever likes reads.
#[derive(Debug)]
pub struct Registry {
    cores: Vec<Arc<CoreMetrics>>,
    /// What stood there when an index was given to a new tenant: cores never
    /// write a zero, readers subtract this.
    baselines: Mutex<HashMap<(usize, usize), TenantSnapshot>>,
}

impl Registry {
    /// Room for so many devices, and so many tenants of each; what is not used
    /// costs 16 bytes a device.
    pub fn new(cores: usize, devices: usize, tenants: usize) -> Registry {
        Registry {
            cores: (0..cores)
                .map(|_| Arc::new(CoreMetrics::new(devices, tenants)))
                .collect(),
            baselines: Mutex::default(),
        }
    }

    /// What the thread of that core writes.
    pub fn core(&self, index: usize) -> Option<Arc<CoreMetrics>> {
        self.cores.get(index).cloned()
    }

    pub fn cores(&self) -> &[Arc<CoreMetrics>] {
        &self.cores
    }

    /// A tenant's numbers since it was added, all cores together.
    pub fn tenant(&self, device: usize, tenant: usize) -> TenantSnapshot {
        let all = self.raw(device, tenant);
        let baselines = self
            .baselines
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match baselines.get(&(device, tenant)) {
            Some(before) => all.since(before),
            None => all,
        }
    }

    /// One number of a tenant, all cores together, since the server started.
    pub fn sum(&self, device: usize, tenant: usize, of: impl Fn(&TenantStats) -> u64) -> u64 {
        let stats = self.cores.iter().filter_map(|c| c.seen(device, tenant));
        stats.fold(0, |sum, s| sum.wrapping_add(of(s)))
    }

    /// One histogram of a tenant, all cores together, since the server started.
    pub fn histogram(
        &self,
        device: usize,
        tenant: usize,
        of: impl Fn(&TenantStats) -> &Histogram,
    ) -> Snapshot {
        let mut all = Snapshot::default();
        for stats in self.cores.iter().filter_map(|c| c.seen(device, tenant)) {
            of(stats).merge_into(&mut all);
        }
        all
    }

    /// The index belongs to a new tenant from now on.
    pub fn restart(&self, device: usize, tenant: usize) {
        let all = self.raw(device, tenant);
        self.baselines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert((device, tenant), all);
    }

    fn raw(&self, device: usize, tenant: usize) -> TenantSnapshot {
        let mut all = TenantSnapshot::default();
        for core in &self.cores {
            if let Some(stats) = core.seen(device, tenant) {
                all.add(stats);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::stats::{Kind, Stages};
    use super::*;

    #[test]
    fn cores_are_merged_and_a_new_tenant_starts_at_zero() {
        let registry = Registry::new(2, 1, 4);
        for (index, n) in [(0, 3), (1, 5)] {
            let core = registry.core(index).unwrap();
            for _ in 0..n {
                core.tenant(0, 2)
                    .unwrap()
                    .done(Kind::Read, 4096, true, Stages::default());
            }
        }
        let all = registry.tenant(0, 2);
        assert_eq!((all.reads, all.read_bytes), (8, 8 * 4096));
        assert_eq!(all.service.count(), 8);
        assert_eq!(registry.sum(0, 2, |s| s.reads.get()), 8);
        assert_eq!(registry.histogram(0, 2, |s| &s.service), all.service);
        assert_eq!(registry.tenant(0, 1), TenantSnapshot::default());
        registry.restart(0, 2);
        assert_eq!(registry.tenant(0, 2).reads, 0);
        let core = registry.core(0).unwrap();
        core.tenant(0, 2).unwrap().reads.add(1);
        assert_eq!(registry.tenant(0, 2).reads, 1);
        assert!(core.tenant(0, 4).is_none());
        assert!(core.tenant(1, 0).is_none());
        assert!(registry.core(2).is_none());
    }

    #[test]
    fn a_tenant_without_requests_has_no_memory() {
        let registry = Registry::new(1, 1, 1000);
        let core = registry.core(0).unwrap();
        assert!(core.seen(0, 7).is_none());
        core.tenant(0, 7);
        assert!(core.seen(0, 7).is_some());
        assert!(core.seen(0, 8).is_none());
    }

    #[test]
    fn a_reader_beside_a_writer_sees_it_grow() {
        let registry = Arc::new(Registry::new(1, 1, 1));
        let core = registry.core(0).unwrap();
        let writer = std::thread::spawn(move || {
            let stats = core.tenant(0, 0).unwrap();
            for ns in 0..20_000 {
                stats.done(
                    Kind::Read,
                    1,
                    true,
                    Stages {
                        service: ns,
                        ..Stages::default()
                    },
                );
            }
        });
        let mut last = 0;
        while !writer.is_finished() {
            let now = registry.tenant(0, 0).service.count();
            assert!(now >= last);
            last = now;
        }
        writer.join().unwrap();
        assert_eq!(registry.tenant(0, 0).service.count(), 20_000);
    }
}
