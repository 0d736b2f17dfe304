// SPDX-License-Identifier: GPL-2.0-only
//! Telling the service manager how we are: sd_notify(3) is one datagram.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The service manager, if there is one.
#[derive(Debug, Default)]
pub struct Manager {
    socket: Option<UnixDatagram>,
}

impl Manager {
    /// The one that `NOTIFY_SOCKET` names.
    pub fn of_environment() -> Manager {
        match std::env::var_os("NOTIFY_SOCKET") {
            Some(name) => Manager::at(&name),
            None => Manager::default(),
        }
    }

    fn at(name: &OsStr) -> Manager {
        let address = match name.as_bytes().strip_prefix(b"@") {
            Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name),
            None => SocketAddr::from_pathname(name),
        };
        let connected = address.and_then(|address| {
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&address)?;
            Ok(socket)
        });
        match connected {
            Ok(socket) => Manager {
                socket: Some(socket),
            },
            Err(e) => {
                log::warn!("the service manager can't be told anything: {e}");
                Manager::default()
            }
        }
    }

    fn say(&self, text: &str) {
        if let Some(socket) = &self.socket {
            if let Err(e) = socket.send(text.as_bytes()) {
                log::warn!("the service manager was not told: {e}");
            }
        }
    }

    pub fn ready(&self, status: &str) {
        self.say(&format!("READY=1\nSTATUS={status}"));
    }

    /// `now` is CLOCK_MONOTONIC in nanoseconds, which Type=notify-reload wants.
    pub fn reloading(&self, now: u64) {
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={}", now / 1000));
    }

    pub fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=Finishing requests");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let n = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    }

    #[test]
    fn one_datagram_each() {
        let path = std::env::temp_dir().join(format!("rflashd-notify-{}", std::process::id()));
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = Manager::at(path.as_os_str());
        manager.ready("2 tenants");
        assert_eq!(received(&socket), "READY=1\nSTATUS=2 tenants");
        manager.reloading(5_000);
        assert_eq!(received(&socket), "RELOADING=1\nMONOTONIC_USEC=5");
        manager.stopping();
        assert!(received(&socket).starts_with("STOPPING=1\n"));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn an_abstract_name_and_none() {
        let name = format!("rflashd-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        Manager::at(OsStr::new(&format!("@{name}"))).ready("");
        assert_eq!(received(&socket), "READY=1\nSTATUS=");
        Manager::at(OsStr::new("/nobody/listens")).ready("");
        Manager::default().stopping();
    }
}
