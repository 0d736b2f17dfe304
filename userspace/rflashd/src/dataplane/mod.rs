// SPDX-License-Identifier: GPL-2.0-only
//! The data plane: one thread per core, nothing shared between them on the way
//! of a command.
//!
//! `listener` accepts connections and gives each to a `core`. A core owns its
//! connections, its buffers, its request slots and its part of the backends and
//! of the scheduler, all in an `engine`. What came is parsed where it was
//! received; replies are sent from where the data stands. See `core` for the
//! loop, `receive`, `command`, `transfer` and `reply` for the way of a command,
//! `outbox` and `backend` for the hazards.
//!
//! Bounds, per core: buffers ([`Settings::buffer_bytes`]), request slots
//! ([`Settings::slots`]), one receive buffer of 512 KiB; per connection:
//! [`AT_REST`] bytes at rest, at most its queue's entries in slots, at most a
//! quarter of the buffers; a partial PDU of at most 8 KiB and 148 bytes.

mod admin;
mod buffer;
mod clock;
mod command;
mod complaint;
mod connection;
mod core;
mod engine;
mod fault;
mod gate;
mod listener;
mod mailbox;
mod outbox;
mod poller;
mod receive;
mod reply;
mod request;
mod settings;
mod socket;
mod transfer;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use crate::metrics::Registry;
use crate::subsystem::{PeerInfo, Target};

use self::connection::Connection;
use self::core::{Core, Neighbour};
use self::engine::Engine;
use self::gate::Gate;
use self::listener::{Acceptor, Listener, Order};
use self::mailbox::Mailbox;

pub use self::clock::now;
pub use self::connection::AT_REST;
pub use self::settings::Settings;

/// What a core is told.
pub(crate) enum Letter {
    New { socket: OwnedFd, peer: PeerInfo },
    Moved(Box<Connection>),
    Notify { index: u32, generation: u32 },
    Device(Arc<qos::Shared>),
    Stop { graceful: bool },
}

/// The running data plane. Dropping it stops it, not gracefully.
pub struct Dataplane {
    cores: Arc<[Neighbour]>,
    orders: Arc<Mailbox<Order>>,
    threads: Vec<JoinHandle<()>>,
}

impl Dataplane {
    /// Start a core on each of the settings' CPUs. `devices` are the schedulers
    /// by device index ([`crate::backend::Volume::on_device`]); commands on
    /// devices without one are not scheduled. `registry` has as many cores as
    /// there are CPUs, at least one.
    pub fn start(
        settings: Settings,
        target: Arc<Target>,
        devices: &[Arc<qos::Shared>],
        registry: &Registry,
    ) -> io::Result<Dataplane> {
        let settings = Arc::new(settings);
        let devices: Arc<[Arc<qos::Shared>]> = devices.into();
        let mut cpus: Vec<Option<u32>> = settings.cpus.iter().copied().map(Some).collect();
        if cpus.is_empty() {
            cpus.push(None);
        }
        let mut neighbours = Vec::new();
        for cpu in cpus {
            neighbours.push(Neighbour {
                cpu,
                mailbox: Arc::new(Mailbox::new()?),
                connections: AtomicUsize::new(0),
                queues: AtomicUsize::new(self::core::UNKNOWN),
            });
        }
        let cores: Arc<[Neighbour]> = neighbours.into();
        let mut plane = Dataplane {
            cores: Arc::clone(&cores),
            orders: Arc::new(Mailbox::new()?),
            threads: Vec::new(),
        };
        for (index, core) in cores.iter().enumerate() {
            let metrics = registry.core(index).ok_or_else(|| {
                io::Error::other(format!("the registry has no metrics of core {index}"))
            })?;
            let (settings, target) = (Arc::clone(&settings), Arc::clone(&target));
            let mailbox = Arc::clone(&core.mailbox);
            let (cpu, neighbours) = (core.cpu, Arc::clone(&cores));
            let devices = Arc::clone(&devices);
            plane.spawn_core(index, move || {
                let cpus: Vec<u32> = cpu.into_iter().collect();
                if let Err(error) = socket::place_thread(&cpus, settings.priority) {
                    log::warn!("core {index} can't have its CPU or priority: {error}");
                }
                let gate = Gate::new(&devices);
                let engine = Engine::new(index, settings, target, metrics, mailbox, gate)?;
                Core::new(engine, neighbours)
            })?;
        }
        let acceptor = Acceptor {
            orders: Arc::clone(&plane.orders),
            cores,
            most: settings.connections,
        };
        let builder = std::thread::Builder::new().name("rflashd-accept".into());
        plane.threads.push(builder.spawn(|| acceptor.run())?);
        Ok(plane)
    }

    /// Start a core's thread; what it owns is made there, since it is not to be
    /// shared.
    fn spawn_core(
        &mut self,
        index: usize,
        make: impl FnOnce() -> io::Result<Core> + Send + 'static,
    ) -> io::Result<()> {
        let (ready, started) = mpsc::channel();
        let builder = std::thread::Builder::new().name(format!("rflashd-core{index}"));
        let thread = builder.spawn(move || match make() {
            Ok(core) => {
                let _ = ready.send(Ok(()));
                core.run();
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        })?;
        self.threads.push(thread);
        started
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("a core's thread ended as it began")))
    }

    /// Addresses that can be connected to from now on. Port 0 takes any that is
    /// free; returned is the one that was taken.
    pub fn listen(&self, address: SocketAddr) -> io::Result<SocketAddr> {
        let listener = Listener::bind(address)?;
        let address = listener.address;
        self.orders.post(Order::Listen(listener));
        Ok(address)
    }

    /// Accept no more on an address that `listen` returned.
    pub fn unlisten(&self, address: SocketAddr) {
        self.orders.post(Order::Close(address));
    }

    /// One device more, with the next index, on all cores. To be called before
    /// a namespace on it is exported.
    pub fn add_device(&self, shared: &Arc<qos::Shared>) {
        for core in self.cores.iter() {
            core.mailbox.post(Letter::Device(Arc::clone(shared)));
        }
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        let count = |n: &Neighbour| n.connections.load(Ordering::Relaxed);
        self.cores.iter().map(count).sum()
    }

    /// Accept no more, let requests in flight finish if `graceful`, close all.
    pub fn stop(mut self, graceful: bool) {
        self.halt(graceful);
    }

    fn halt(&mut self, graceful: bool) {
        if self.threads.is_empty() {
            return;
        }
        self.orders.post(Order::Stop);
        for core in self.cores.iter() {
            core.mailbox.post(Letter::Stop { graceful });
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                log::error!("a thread of the data plane has panicked");
            }
        }
    }
}

impl Drop for Dataplane {
    fn drop(&mut self) {
        self.halt(false);
    }
}
