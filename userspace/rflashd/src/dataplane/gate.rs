// SPDX-License-Identifier: GPL-2.0-only
//! Who may run now: a core's schedulers, one per device.

use std::sync::Arc;

use qos::{Entry, Op, Scheduler, Shared, TenantId};

use crate::backend::Nanos;

/// What the device model charges a command as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    Read,
    Write,
    Flush,
    /// Discard and Write Zeroes.
    Discard,
}

/// A core's side of one device's scheduler.
struct Device {
    shared: Arc<Shared>,
    scheduler: Scheduler,
    /// Tenants there can be.
    capacity: u32,
}

/// A core's side of the schedulers. What belongs to no device or no tenant of
/// it runs at once.
#[derive(Default)]
pub struct Gate {
    devices: Vec<Device>,
}

impl Device {
    #[inline]
    fn cost(&self, charge: Charge, bytes: u64) -> qos::Tokens {
        match charge {
            Charge::Read => self.shared.cost(Op::Read, bytes),
            Charge::Write => self.shared.cost(Op::Write, bytes),
            Charge::Flush => self.shared.model().flush(),
            Charge::Discard => self.shared.model().discard(bytes),
        }
    }
}

impl Gate {
    pub fn new(devices: &[Arc<Shared>]) -> Gate {
        let mut gate = Gate::default();
        for device in devices {
            gate.add(Arc::clone(device));
        }
        gate
    }

    /// One device more, with the next index.
    pub fn add(&mut self, shared: Arc<Shared>) {
        self.devices.push(Device {
            scheduler: Scheduler::new(Arc::clone(&shared)),
            capacity: u32::try_from(shared.capacity()).unwrap_or(u32::MAX),
            shared,
        });
    }

    /// The device, if it has such a tenant.
    #[inline]
    fn device(&mut self, device: u16, tenant: u32) -> Option<&mut Device> {
        let device = self.devices.get_mut(usize::from(device))?;
        (tenant < device.capacity).then_some(device)
    }

    /// Take the tokens of a command that moves `bytes`, if its tenant has them
    /// and nothing of the tenant waits here.
    #[inline]
    pub fn admit(
        &mut self,
        device: u16,
        tenant: u32,
        charge: Charge,
        bytes: u64,
        now: Nanos,
    ) -> bool {
        let Some(device) = self.device(device, tenant) else {
            return true;
        };
        let cost = device.cost(charge, bytes);
        device.scheduler.admit(TenantId(tenant), cost, now)
    }

    /// Let a slot that was not admitted wait for its tenant's tokens.
    pub fn enqueue(&mut self, device: u16, tenant: u32, charge: Charge, bytes: u64, slot: u32) {
        if let Some(device) = self.device(device, tenant) {
            let cost = device.cost(charge, bytes);
            let entry = Entry { handle: slot, cost };
            device.scheduler.enqueue(TenantId(tenant), entry);
        }
    }

    /// Append the slots that may run now, about `budget` of each device at most.
    #[inline]
    pub fn run(&mut self, now: Nanos, budget: usize, granted: &mut Vec<u32>) {
        for device in &mut self.devices {
            let serve = &mut |_, slot| granted.push(slot);
            device.scheduler.run(now, budget, serve);
        }
    }

    /// A waiting slot is dropped; its tokens were not taken.
    pub fn cancel(&mut self, device: u16, tenant: u32, slot: u32) {
        if let Some(device) = self.device(device, tenant) {
            device.scheduler.cancel(TenantId(tenant), slot);
        }
    }

    /// When `run` is to be called again, if it is.
    pub fn next_wakeup(&self, now: Nanos) -> Option<Nanos> {
        let wakeups = self.devices.iter();
        wakeups.filter_map(|d| d.scheduler.next_wakeup(now)).min()
    }

    /// There is nothing to do: accounts settle.
    pub fn idle(&mut self, now: Nanos) {
        for device in &mut self.devices {
            device.scheduler.idle(now);
        }
    }
}
