// SPDX-License-Identifier: GPL-2.0-only
//! A controller: what a host sees of a subsystem. State, life and events; what
//! it answers stands in [`super::admin`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use nvme_wire::command::{Sqe, async_event, log};
use nvme_wire::nqn;
use nvme_wire::status::Status;

use super::association::Denial;
use super::errors::ErrorLog;
use super::export::{MAX_NSID, Subsystem};
use super::features::Features;
use super::model::{MAX_IO_QUEUES, NamespaceTable, Nanos, Notify, PeerInfo, TenantId};
use super::property::Registers;
use super::target::Target;

/// Asynchronous Event Requests that may be outstanding (AERL + 1).
pub(super) const MAX_EVENTS: usize = 4;

/// What there is behind a controller.
pub(super) enum Kind {
    Discovery,
    Io(Arc<Subsystem>),
}

/// One host's view of a subsystem, from Connect of its admin queue until that
/// queue's [`super::Association`] is dropped. Shared by the cores of its queues.
pub struct Controller {
    cntlid: u16,
    host_nqn: String,
    host_id: [u8; 16],
    pub(super) kind: Kind,
    pub(super) peer: PeerInfo,
    target: Weak<Target>,
    /// Counts everything an association has to look at.
    pub(super) generation: AtomicU64,
    /// Counts resets; I/O queues do not survive one.
    epoch: AtomicU64,
    closed: AtomicBool,
    last_seen: AtomicU64,
    /// 0: off.
    kato_ms: AtomicU32,
    state: Mutex<State>,
    notify: Mutex<BTreeMap<u16, Notify>>,
}

pub(super) struct State {
    pub registers: Registers,
    pub features: Features,
    pub errors: ErrorLog,
    tenant: TenantId,
    queues: BTreeSet<u16>,
    /// Command ids of event requests that wait.
    requests: VecDeque<u16>,
    /// Results of events that wait for a request, by their bit.
    events: VecDeque<(u32, u32)>,
    /// Bits of events that were raised and not yet looked into.
    masked: u32,
    changed: BTreeSet<u32>,
}

impl Controller {
    pub(super) fn new(
        cntlid: u16,
        kind: Kind,
        host_nqn: &str,
        host_id: [u8; 16],
        peer: PeerInfo,
        target: Weak<Target>,
    ) -> Controller {
        Controller {
            cntlid,
            host_nqn: host_nqn.into(),
            host_id,
            kind,
            peer,
            target,
            generation: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            last_seen: AtomicU64::new(0),
            kato_ms: AtomicU32::new(0),
            state: Mutex::new(State {
                registers: Registers::default(),
                features: Features::default(),
                errors: ErrorLog::default(),
                tenant: TenantId(0),
                queues: BTreeSet::new(),
                requests: VecDeque::new(),
                events: VecDeque::new(),
                masked: 0,
                changed: BTreeSet::new(),
            }),
            notify: Mutex::new(BTreeMap::new()),
        }
    }

    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    pub fn host_nqn(&self) -> &str {
        &self.host_nqn
    }

    pub fn host_id(&self) -> &[u8; 16] {
        &self.host_id
    }

    pub fn subsys_nqn(&self) -> &str {
        match &self.kind {
            Kind::Discovery => nqn::DISCOVERY,
            Kind::Io(subsystem) => &subsystem.nqn,
        }
    }

    pub fn is_discovery(&self) -> bool {
        matches!(self.kind, Kind::Discovery)
    }

    pub(super) fn subsystem(&self) -> Option<&Arc<Subsystem>> {
        match &self.kind {
            Kind::Discovery => None,
            Kind::Io(subsystem) => Some(subsystem),
        }
    }

    pub(super) fn target(&self) -> Option<Arc<Target>> {
        self.target.upgrade()
    }

    /// The ids of all controllers of the subsystem, in ascending order.
    pub(super) fn siblings(&self) -> Vec<u16> {
        let target = self.target();
        let all = target.map(|target| target.controllers_of(self.subsys_nqn()));
        all.iter().flatten().map(|c| c.cntlid()).collect()
    }

    /// The namespaces as they are now.
    pub fn namespaces(&self) -> Arc<NamespaceTable> {
        self.subsystem()
            .map(|subsystem| subsystem.live().table)
            .unwrap_or_default()
    }

    /// Enabled and ready. I/O is only for ready controllers; an association
    /// whose `refresh` does not say closed has one.
    pub fn is_ready(&self) -> bool {
        self.lock().registers.is_ready()
    }

    pub fn tenant(&self) -> TenantId {
        self.lock().tenant
    }

    pub(super) fn set_tenant(&self, tenant: TenantId) {
        let mut state = self.lock();
        let same = std::mem::replace(&mut state.tenant, tenant) == tenant;
        drop(state);
        if !same {
            self.changed();
        }
    }

    // ---- queues ------------------------------------------------------------

    /// The epoch to which the queue belongs.
    pub(super) fn open_queue(&self, qid: u16) -> Result<u64, Denial> {
        let mut state = self.lock();
        let closed = self.closed.load(Ordering::Acquire);
        if closed || (qid != 0 && !state.registers.is_ready()) {
            return Err(Denial::NotReady);
        }
        let most = match self.kind {
            Kind::Discovery => 0,
            Kind::Io(_) => state.features.io_queues.min(MAX_IO_QUEUES),
        };
        if qid > most {
            return Err(Denial::TooHigh(most));
        }
        if !state.queues.insert(qid) {
            return Err(Denial::InUse);
        }
        Ok(self.epoch.load(Ordering::Acquire))
    }

    pub(super) fn close_queue(&self, qid: u16, epoch: u64) {
        let mut state = self.lock();
        // After a reset the id may be another connection's.
        if qid == 0 || self.epoch.load(Ordering::Acquire) == epoch {
            state.queues.remove(&qid);
            self.lock_notify().remove(&qid);
        }
    }

    pub(super) fn closed_to(&self, qid: u16, epoch: u64) -> bool {
        let reset = qid != 0 && self.epoch.load(Ordering::Acquire) != epoch;
        reset || self.closed.load(Ordering::Acquire)
    }

    pub(super) fn has_io_queues(state: &State) -> bool {
        state.queues.iter().any(|&qid| qid != 0)
    }

    /// Everything that a reset takes back, and a shutdown too.
    pub(super) fn reset(&self, state: &mut State) {
        state.features = Features::default();
        state.requests.clear();
        state.events.clear();
        state.changed.clear();
        state.masked = 0;
        state.queues.retain(|&qid| qid == 0);
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Nobody may use the controller any more; its connections are told.
    pub fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.changed();
        }
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    // ---- keep-alive --------------------------------------------------------

    pub(super) fn begin(&self, kato_ms: u32, tenant: TenantId) {
        self.set_kato(kato_ms);
        self.lock().tenant = tenant;
    }

    /// In milliseconds, rounded up to the granularity that is announced (KAS).
    pub(super) fn set_kato(&self, ms: u32) {
        let rounded = ms.div_ceil(KATO_UNIT_MS).saturating_mul(KATO_UNIT_MS);
        self.kato_ms.store(rounded, Ordering::Relaxed);
    }

    pub fn kato_ms(&self) -> u32 {
        self.kato_ms.load(Ordering::Relaxed)
    }

    /// There was traffic on a queue: the keep-alive timer starts anew.
    #[inline]
    pub fn touch(&self, now: Nanos) {
        self.last_seen.fetch_max(now, Ordering::Relaxed);
    }

    /// The host has been silent for longer than its keep-alive timeout; the
    /// controller is closed by this.
    pub fn expired(&self, now: Nanos) -> bool {
        let kato = u64::from(self.kato_ms()) * 1_000_000;
        let seen = self.last_seen.load(Ordering::Relaxed);
        if seen == 0 {
            // The clock begins with the first look at it.
            self.touch(now);
            return false;
        }
        if kato == 0 || now.saturating_sub(seen) <= kato {
            return false;
        }
        if !self.is_closed() {
            ::log::warn!(
                "host \"{}\" at {} has been silent for more than {} ms: controller {} of \"{}\" is closed",
                self.host_nqn,
                self.peer.remote,
                self.kato_ms(),
                self.cntlid,
                self.subsys_nqn()
            );
            self.close();
        }
        true
    }

    // ---- events ------------------------------------------------------------

    /// Keep an event request, or answer it at once with an event that waits.
    pub(super) fn request_event(&self, cid: u16) -> Result<Option<u32>, Status> {
        let mut state = self.lock();
        if let Some((_, result)) = state.events.pop_front() {
            return Ok(Some(result));
        }
        if state.requests.len() >= MAX_EVENTS {
            return Err(Status::ASYNC_EVENT_LIMIT);
        }
        state.requests.push_back(cid);
        Ok(None)
    }

    /// Asynchronous Event Requests to complete now, with success: command id
    /// and result. Each is named once.
    pub fn events(&self) -> Vec<(u16, u64)> {
        let mut state = self.lock();
        let State {
            requests, events, ..
        } = &mut *state;
        let count = requests.len().min(events.len());
        let results = events.drain(..count).map(|(_, result)| u64::from(result));
        requests.drain(..count).zip(results).collect()
    }

    /// Tell the host, if it wants to know and has looked into the last such
    /// event.
    pub(super) fn raise(&self, bit: u32, info: u8, page: u8) {
        let mut state = self.lock();
        if state.features.events & bit == 0 || state.masked & bit != 0 {
            return;
        }
        state.masked |= bit;
        state
            .events
            .push_back((bit, async_event::notice(info, page)));
        drop(state);
        self.notify(0);
    }

    /// The log page was read: the next such event is news again.
    pub(super) fn rearm(state: &mut State, bit: u32) {
        state.masked &= !bit;
        state.events.retain(|&(waiting, _)| waiting != bit);
    }

    /// Namespaces came, went or changed; none: something else did.
    pub(super) fn namespaces_changed(&self, nsids: &BTreeSet<u32>) {
        self.changed();
        if !nsids.is_empty() {
            self.lock().changed.extend(nsids);
            self.raise(async_event::NAMESPACE_ATTRIBUTE, 0, log::CHANGED_NAMESPACES);
        }
    }

    /// The ids that have changed since they were last taken with `clear`, as
    /// the log page has them.
    pub(super) fn changed_namespaces(state: &mut State, clear: bool) -> Vec<u32> {
        let nsids: Vec<u32> = state.changed.iter().copied().collect();
        if clear {
            state.changed.clear();
        }
        // The page has room for as many as there can be ids.
        debug_assert!(nsids.len() <= MAX_NSID as usize);
        nsids
    }

    /// `notify` is called when queue `qid` has something to look at: events on
    /// the admin queue, [`super::Association::refresh`] on any.
    pub fn set_notify(&self, qid: u16, notify: Notify) {
        self.lock_notify().insert(qid, notify);
    }

    fn notify(&self, qid: u16) {
        let notify = self.lock_notify().get(&qid).cloned();
        if let Some(notify) = notify {
            notify();
        }
    }

    /// Associations have to look.
    pub(super) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        let all: Vec<Notify> = self.lock_notify().values().cloned().collect();
        for notify in all {
            notify();
        }
    }

    // ---- errors ------------------------------------------------------------

    /// An I/O command has failed on the backend: an entry for the error log.
    pub fn record_error(&self, qid: u16, sqe: &Sqe, status: Status) {
        self.lock().errors.record(qid, sqe, status, None);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_notify(&self) -> MutexGuard<'_, BTreeMap<u16, Notify>> {
        self.notify.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Granularity of the keep-alive timer, milliseconds: KAS is 1.
pub(super) const KATO_UNIT_MS: u32 = 100;
