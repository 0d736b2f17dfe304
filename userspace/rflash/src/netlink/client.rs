// SPDX-License-Identifier: GPL-2.0-only
//! Requests to one generic-netlink family.

use std::io;

use netlink_sys::{SocketAddr, protocols::NETLINK_GENERIC};

use super::NetlinkError;
use super::attr::{Attrs, Builder};
use super::message::{
    F_ACK, F_DUMP, F_DUMP_INTR, GENL_HEADER_LEN, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP,
    NLMSG_OVERRUN, Refusal, acknowledgement, request, split,
};

/// The controller of generic netlink, which knows the families.
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_VERSION: u8 = 2;

/// Larger than any answer: attributes have 16-bit lengths.
const RECEIVE_BUFFER: usize = 128 * 1024;
/// How often a dump that was overtaken by changes is asked for again.
const DUMP_TRIES: u32 = 8;

/// Where datagrams go and come from; tests have one without a kernel.
pub trait Port {
    fn send(&mut self, datagram: &[u8]) -> io::Result<()>;
    fn receive(&mut self) -> io::Result<Vec<u8>>;
}

/// A netlink socket.
pub struct Socket(netlink_sys::Socket);

impl Socket {
    pub fn open() -> io::Result<Socket> {
        let mut socket = netlink_sys::Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        Ok(Socket(socket))
    }
}

impl Port for Socket {
    fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        loop {
            match self.0.send(datagram, 0) {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut buffer = Vec::with_capacity(RECEIVE_BUFFER);
        let len = loop {
            match self.0.recv(&mut buffer, libc::MSG_TRUNC) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if len > buffer.len() {
            return Err(io::Error::other(format!(
                "a datagram of {len} bytes was cut off"
            )));
        }
        Ok(buffer)
    }
}

/// A family and the way to it.
pub struct Client<P> {
    port: P,
    family: u16,
    version: u8,
    seq: u32,
}

impl<P: Port> Client<P> {
    /// Find the family.
    pub fn open(port: P, name: &str, version: u8) -> Result<Client<P>, NetlinkError> {
        let mut client = Client {
            port,
            family: GENL_ID_CTRL,
            version: CTRL_VERSION,
            seq: 0,
        };
        let attrs = Builder::new().string(CTRL_ATTR_FAMILY_NAME, name);
        let answers = match client.request(CTRL_CMD_GETFAMILY, attrs) {
            Err(NetlinkError::Refused(Refusal {
                errno: libc::ENOENT,
                ..
            })) => {
                return Err(NetlinkError::NoFamily);
            }
            other => other?,
        };
        for attr in answers.iter().flat_map(|a| Attrs::new(a)) {
            let attr = attr?;
            if attr.kind == CTRL_ATTR_FAMILY_ID {
                client.family = attr.u16()?;
                client.version = version;
                return Ok(client);
            }
        }
        Err(NetlinkError::Malformed("the family has no id"))
    }

    /// A "do" request; returns the attributes of each answer.
    pub fn request(&mut self, cmd: u8, attrs: Builder) -> Result<Vec<Vec<u8>>, NetlinkError> {
        let (answers, _) = self.exchange(cmd, F_ACK, attrs)?;
        Ok(answers)
    }

    /// A dump; returns the attributes of each message, of one moment.
    pub fn dump(&mut self, cmd: u8, attrs: Builder) -> Result<Vec<Vec<u8>>, NetlinkError> {
        for _ in 0..DUMP_TRIES {
            let (answers, interrupted) = self.exchange(cmd, F_DUMP, attrs.clone())?;
            if !interrupted {
                return Ok(answers);
            }
        }
        Err(NetlinkError::Malformed(
            "what it lists changes all the time",
        ))
    }

    fn exchange(
        &mut self,
        cmd: u8,
        flags: u16,
        attrs: Builder,
    ) -> Result<(Vec<Vec<u8>>, bool), NetlinkError> {
        self.seq = self.seq.wrapping_add(1);
        let sent = request(
            self.family,
            flags,
            self.seq,
            cmd,
            self.version,
            &attrs.into_bytes(),
        );
        self.port.send(&sent)?;
        let mut answers = Vec::new();
        let mut interrupted = false;
        loop {
            let datagram = self.port.receive()?;
            for message in split(&datagram)? {
                // What is left of a request that failed half way.
                if message.seq != self.seq {
                    continue;
                }
                interrupted |= message.flags & F_DUMP_INTR != 0;
                match message.kind {
                    NLMSG_NOOP => {}
                    NLMSG_OVERRUN => return Err(NetlinkError::Malformed("answers were lost")),
                    NLMSG_ERROR | NLMSG_DONE => {
                        let refusal = acknowledgement(&message, &sent)?;
                        if refusal.errno != 0 {
                            return Err(NetlinkError::Refused(refusal));
                        }
                        return Ok((answers, interrupted));
                    }
                    _ => {
                        let attrs = message.payload.get(GENL_HEADER_LEN..);
                        let attrs = attrs.ok_or(NetlinkError::Malformed("a message is cut off"))?;
                        answers.push(attrs.to_vec());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::message::{F_ACK_TLVS, F_CAPPED, HEADER_LEN};
    use super::*;
    use std::collections::VecDeque;

    /// A model of the kernel's side: answers prepared datagrams in order, with
    /// the sequence number of the request, and keeps what was sent.
    #[derive(Default)]
    pub(crate) struct Scripted {
        pub answers: VecDeque<Vec<u8>>,
        pub sent: Vec<Vec<u8>>,
        seq: [u8; 4],
    }

    impl Scripted {
        pub(crate) fn new(answers: impl IntoIterator<Item = Vec<u8>>) -> Scripted {
            Scripted {
                answers: answers.into_iter().collect(),
                ..Scripted::default()
            }
        }
    }

    impl Port for &mut Scripted {
        fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
            self.seq.copy_from_slice(&datagram[8..12]);
            self.sent.push(datagram.to_vec());
            Ok(())
        }

        fn receive(&mut self) -> io::Result<Vec<u8>> {
            let mut datagram = self.answers.pop_front().expect("an answer is left");
            let mut at = 0;
            while at + HEADER_LEN <= datagram.len() {
                datagram[at + 8..at + 12].copy_from_slice(&self.seq);
                let len = u32::from_ne_bytes(datagram[at..at + 4].try_into().unwrap());
                at += (len as usize).next_multiple_of(4);
            }
            Ok(datagram)
        }
    }

    pub(crate) fn message(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let mut out = ((HEADER_LEN + payload.len()) as u32).to_ne_bytes().to_vec();
        out.extend(kind.to_ne_bytes());
        out.extend(flags.to_ne_bytes());
        out.extend([0; 8]);
        out.extend(payload);
        out
    }

    pub(crate) fn answer(kind: u16, attrs: Builder) -> Vec<u8> {
        let mut payload = vec![1, 1, 0, 0];
        payload.extend(attrs.into_bytes());
        message(kind, 0, &payload)
    }

    pub(crate) fn ack(errno: i32, text: Option<&str>) -> Vec<u8> {
        let mut payload = (-errno).to_ne_bytes().to_vec();
        payload.extend([0; 16]);
        let mut flags = F_CAPPED;
        if let Some(text) = text {
            flags |= F_ACK_TLVS;
            payload.extend(Builder::new().string(1, text).into_bytes());
        }
        message(NLMSG_ERROR, flags, &payload)
    }

    pub(crate) fn done(flags: u16) -> Vec<u8> {
        message(NLMSG_DONE, flags, &0_i32.to_ne_bytes())
    }

    pub(crate) fn family() -> [Vec<u8>; 2] {
        let attrs = Builder::new().string(2, "rflash").u16(1, 0x23);
        [answer(GENL_ID_CTRL, attrs), ack(0, None)]
    }

    #[test]
    fn family_is_looked_up() {
        let mut port = Scripted::new(family());
        let client = Client::open(&mut port, "rflash", 1).unwrap();
        assert_eq!(client.family, 0x23);
        assert_eq!(port.sent[0][16..20], [3, 2, 0, 0]);
    }

    #[test]
    fn missing_family_says_modprobe() {
        let mut port = Scripted::new([ack(libc::ENOENT, None)]);
        let error = Client::open(&mut port, "rflash", 1).err().unwrap();
        assert_eq!(
            error.to_string(),
            "the rflash driver is not loaded: run `modprobe rflash` first"
        );
    }

    #[test]
    fn overtaken_dump_is_repeated() {
        let one = |value| answer(0x23, Builder::new().u32(3, value));
        let mut both = one(7);
        both.extend(one(8));
        let mut port =
            Scripted::new(
                family()
                    .into_iter()
                    .chain([one(1), done(F_DUMP_INTR), both, done(0)]),
            );
        let mut client = Client::open(&mut port, "rflash", 1).unwrap();
        let answers = client.dump(3, Builder::new()).unwrap();
        assert_eq!(answers.len(), 2);
    }

    #[test]
    fn refusal_is_returned() {
        let mut port = Scripted::new(
            family()
                .into_iter()
                .chain([ack(libc::ENODEV, Some("no controller 3"))]),
        );
        let mut client = Client::open(&mut port, "rflash", 1).unwrap();
        let error = client.request(2, Builder::new().u32(3, 3)).unwrap_err();
        assert_eq!(error.to_string(), "no controller 3");
    }
}
