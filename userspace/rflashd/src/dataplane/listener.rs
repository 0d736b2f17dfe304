// SPDX-License-Identifier: GPL-2.0-only
//! The thread that accepts connections and gives them to cores.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use crate::subsystem::PeerInfo;

use super::Letter;
use super::core::Neighbour;
use super::mailbox::Mailbox;
use super::socket;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;
/// Pause after an error like "too many open files".
const PAUSE: Duration = Duration::from_millis(20);

pub struct Listener {
    pub address: SocketAddr,
    socket: OwnedFd,
}

pub enum Order {
    Listen(Listener),
    Close(SocketAddr),
    Stop,
}

impl Listener {
    /// Port 0 takes any; `address` says which.
    pub fn bind(address: SocketAddr) -> io::Result<Listener> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        net::bind(&socket, &address)?;
        net::listen(&socket, BACKLOG)?;
        let address = SocketAddr::try_from(net::getsockname(&socket)?)?;
        Ok(Listener { address, socket })
    }
}

pub struct Acceptor {
    pub orders: Arc<Mailbox<Order>>,
    pub cores: Arc<[Neighbour]>,
    /// Most connections.
    pub most: usize,
}

impl Acceptor {
    pub fn run(self) {
        let mut listeners: Vec<Listener> = Vec::new();
        loop {
            if self.orders.has_letters() && !self.obey(&mut listeners) {
                return;
            }
            if self.orders.sleep() {
                wait(&self.orders, &listeners);
                self.orders.awake();
            }
            self.orders.silence();
            for listener in &listeners {
                self.accept(listener);
            }
        }
    }

    /// `false`: stop.
    fn obey(&self, listeners: &mut Vec<Listener>) -> bool {
        for order in self.orders.take() {
            match order {
                Order::Listen(listener) => listeners.push(listener),
                Order::Close(address) => listeners.retain(|l| l.address != address),
                Order::Stop => return false,
            }
        }
        true
    }

    fn accept(&self, listener: &Listener) {
        loop {
            match net::acceptfrom_with(&listener.socket, SocketFlags::CLOEXEC) {
                Ok((socket, _)) => {
                    if let Err(error) = self.place(socket) {
                        log::debug!("a connection was gone when it was accepted: {error}");
                    }
                }
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
                Err(error) => {
                    log::error!("can't accept connections on {}: {error}", listener.address);
                    std::thread::sleep(PAUSE);
                    return;
                }
            }
        }
    }

    /// Give a connection to the core of the CPU its packets arrive on, else to
    /// the one with the fewest.
    fn place(&self, socket: OwnedFd) -> io::Result<()> {
        let connections = |n: &Neighbour| n.connections.load(Ordering::Relaxed);
        if self.cores.iter().map(connections).sum::<usize>() >= self.most {
            log::warn!("a connection was refused: there are {} already", self.most);
            return Ok(());
        }
        sockopt::set_tcp_nodelay(&socket, true)?;
        let peer = PeerInfo {
            local: SocketAddr::try_from(net::getsockname(&socket)?)?,
            remote: net::getpeername(&socket)?
                .map(SocketAddr::try_from)
                .ok_or(io::ErrorKind::NotConnected)??,
        };
        let cpu = socket::incoming_cpu(socket.as_fd());
        let core = self
            .cores
            .iter()
            .find(|n| cpu.is_some() && n.cpu == cpu)
            .or_else(|| self.cores.iter().min_by_key(|n| connections(n)));
        if let Some(core) = core {
            core.mailbox.post(Letter::New { socket, peer });
        }
        Ok(())
    }
}

fn wait(orders: &Mailbox<Order>, listeners: &[Listener]) {
    let bell = orders.bell();
    let mut fds = vec![PollFd::new(&bell, PollFlags::IN)];
    fds.extend(
        listeners
            .iter()
            .map(|l| PollFd::new(&l.socket, PollFlags::IN)),
    );
    // An interrupted wait looks at all of them, which does no harm.
    let _ = poll(&mut fds, None);
}
