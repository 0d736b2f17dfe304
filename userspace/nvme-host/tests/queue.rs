// SPDX-License-Identifier: GPL-2.0-only
//! The pipelined queue against a model of a target: replies in any order and
//! in pieces of any size, digests, R2Ts, and a peer that breaks the rules.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nvme_host::{
    Deadline, Done, Events, HostError, HostIdentity, IoQueue, Options, QueueSetup, SCRATCH_LEN,
};
use nvme_wire::command::{Cqe, Sqe, io, sgl};
use nvme_wire::digest;
use nvme_wire::fabrics::{CATTR_NO_SQ_FLOW, ConnectCmd};
use nvme_wire::pdu::*;
use nvme_wire::status::Status;
use zerocopy::{Immutable, IntoBytes};

const BLOCK: usize = 512;
const DISK: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    DataDigest,
    /// A completion for a command that has ended.
    Twice,
    /// Data of a read that has ended.
    LateData,
    Short,
    Long,
    OutOfOrder,
    /// The same R2T again.
    Greedy,
    /// An error before the data was taken.
    Refuse,
    /// Success although the data was not taken.
    Careless,
    Close,
}

#[derive(Clone, Copy)]
struct Plan {
    digests: bool,
    fault: Fault,
    /// Bytes per send; 0 is all at once.
    dribble: usize,
    /// Replies are kept until so many can be sent, the last first.
    reverse: usize,
    /// Reads end with the SUCCESS flag.
    success: bool,
    cpda: usize,
}

const PLAIN: Plan = Plan {
    digests: false,
    fault: Fault::None,
    dribble: 0,
    reverse: 1,
    success: true,
    cpda: 0,
};

struct Model {
    stream: TcpStream,
    link: Link,
    plan: Plan,
    disk: Vec<u8>,
    held: Vec<Vec<u8>>,
    /// Writes whose data is under way, and how much has come.
    writes: Vec<(Sqe, usize)>,
}

fn start(plan: Plan) -> (SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let link = Link {
            receive_align: (plan.cpda + 1) * 4,
            ..Link::default()
        };
        let mut model = Model {
            stream,
            link,
            plan,
            disk: vec![0; DISK],
            held: Vec::new(),
            writes: Vec::new(),
        };
        // The end is that the host closes the connection.
        let _ = model.serve();
        model.disk
    });
    (address, thread)
}

impl Model {
    fn pdu<T: IntoBytes + Immutable>(&self, pdu: &T, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        head_bytes(pdu, &self.link, &mut out);
        if !data.is_empty() {
            out.extend_from_slice(data);
            if self.link.data_digest {
                let wrong = u32::from(self.plan.fault == Fault::DataDigest);
                out.extend_from_slice(&digest::to_wire(digest::of(data) ^ wrong));
            }
        }
        out
    }

    fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let size = if self.plan.dribble == 0 {
            bytes.len()
        } else {
            self.plan.dribble
        };
        for chunk in bytes.chunks(size) {
            self.stream.write_all(chunk)?;
        }
        Ok(())
    }

    fn reply(&mut self, bytes: Vec<u8>) -> std::io::Result<()> {
        self.held.push(bytes);
        if self.held.len() >= self.plan.reverse {
            while let Some(bytes) = self.held.pop() {
                self.send(&bytes)?;
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> std::io::Result<(Frame, [u8; HEAD_MAX], Vec<u8>)> {
        let mut head = [0; HEAD_MAX];
        self.stream.read_exact(&mut head[..8])?;
        let frame = frame(common_header(&head).unwrap(), Side::Controller, &self.link).unwrap();
        let end = frame.data_offset.max(frame.head_len);
        self.stream.read_exact(&mut head[8..end])?;
        let mut data = vec![0; frame.data_len];
        self.stream.read_exact(&mut data)?;
        if frame.data_digest {
            let mut wire = [0; 4];
            self.stream.read_exact(&mut wire)?;
            digest::check("data", &data, &wire).unwrap();
        }
        Ok((frame, head, data))
    }

    fn serve(&mut self) -> std::io::Result<()> {
        let (frame, head, _) = self.receive()?;
        let Pdu::IcReq(asked) = decode(&frame, &head).unwrap() else {
            panic!("no ICReq");
        };
        assert!(asked.max_r2t > 1);
        let granted = IcResp {
            hdr_digest: asked.hdr_digest,
            data_digest: asked.data_digest,
            align: self.link.receive_align,
            max_h2c_data: 4096,
        };
        let bytes = self.pdu(&granted.pdu(), &[]);
        self.send(&bytes)?;
        self.link.open = true;
        self.link.hdr_digest = asked.hdr_digest;
        self.link.data_digest = asked.data_digest;
        let (frame, head, data) = self.receive()?;
        let Pdu::CapsuleCmd(&sqe) = decode(&frame, &head).unwrap() else {
            panic!("no Connect");
        };
        let connect = ConnectCmd::of(&sqe).unwrap();
        assert_eq!(connect.cattr, CATTR_NO_SQ_FLOW);
        assert_eq!((connect.qid.get(), data.len()), (1, 1024));
        let bytes = self.completion(&sqe, Status::SUCCESS);
        self.send(&bytes)?;
        loop {
            let (frame, head, data) = self.receive()?;
            if self.plan.fault == Fault::Close {
                return Ok(());
            }
            let sqe = match decode(&frame, &head).unwrap() {
                Pdu::CapsuleCmd(sqe) => *sqe,
                Pdu::H2cData(d) => {
                    self.take(&d, &data)?;
                    continue;
                }
                other => panic!("{other:?}"),
            };
            match sqe.opcode {
                io::READ => self.read(&sqe)?,
                io::WRITE => self.write(&sqe, data)?,
                io::FLUSH => {
                    let bytes = self.completion(&sqe, Status::INVALID_OPCODE);
                    self.reply(bytes)?;
                }
                other => panic!("opcode {other}"),
            }
        }
    }

    fn completion(&self, sqe: &Sqe, status: Status) -> Vec<u8> {
        self.pdu(
            &rsp_pdu(&Cqe::new(sqe.cid.get(), status, 7), &self.link),
            &[],
        )
    }

    /// The data in two PDUs.
    fn read(&mut self, sqe: &Sqe) -> std::io::Result<()> {
        let at = sqe.lba() as usize * BLOCK;
        let mut len = sqe.sgl.length.get() as usize;
        assert_eq!(len, sqe.blocks() as usize * BLOCK);
        match self.plan.fault {
            Fault::Short => len -= 4,
            Fault::Long => len += 4,
            _ => {}
        }
        let data = self.disk[at..at + len].to_vec();
        let half = len / 8 * 4;
        let mut bytes = Vec::new();
        for (begin, end) in [(0, half), (half, len)] {
            let last = end == len;
            let shift = if self.plan.fault == Fault::OutOfOrder && last {
                4
            } else {
                0
            };
            let pdu = Data {
                cid: sqe.cid.get(),
                ttag: 0,
                offset: (begin + shift) as u32,
                length: (end - begin) as u32,
                last,
                success: last && self.plan.success,
            };
            bytes.extend(self.pdu(&data_pdu(&pdu, Side::Host, &self.link), &data[begin..end]));
            if last && self.plan.fault == Fault::LateData {
                let again = Data { offset: 0, ..pdu };
                bytes.extend(self.pdu(&data_pdu(&again, Side::Host, &self.link), &data[begin..]));
            }
        }
        if !self.plan.success || self.plan.fault == Fault::Twice {
            bytes.extend(self.completion(sqe, Status::SUCCESS));
        }
        self.reply(bytes)
    }

    fn write(&mut self, sqe: &Sqe, inline: Vec<u8>) -> std::io::Result<()> {
        let at = sqe.lba() as usize * BLOCK;
        let len = sqe.sgl.length.get() as usize;
        if sqe.sgl.kind == sgl::IN_CAPSULE {
            assert_eq!(inline.len(), len);
            self.disk[at..at + len].copy_from_slice(&inline);
            let bytes = self.completion(sqe, Status::SUCCESS);
            return self.reply(bytes);
        }
        assert!(inline.is_empty());
        // Both halves at once, the second first.
        let half = len / 8 * 4;
        let mut asked = Vec::new();
        let mut ranges = vec![(1, (half, len)), (0, (0, half))];
        if self.plan.fault == Fault::Greedy {
            ranges.push((0, (0, half)));
        }
        for (ttag, (begin, end)) in ranges {
            let r2t = R2t {
                cid: sqe.cid.get(),
                ttag,
                offset: begin as u32,
                length: (end - begin) as u32,
            };
            asked.extend(self.pdu(&r2t_pdu(&r2t, &self.link), &[]));
        }
        match self.plan.fault {
            Fault::Refuse => asked.extend(self.completion(sqe, Status::INTERNAL)),
            Fault::Careless => asked = self.completion(sqe, Status::SUCCESS),
            _ => {}
        }
        self.send(&asked)?;
        if self.plan.fault != Fault::Careless {
            self.writes.push((*sqe, 0));
        }
        Ok(())
    }

    /// Data of a write, which may come between commands.
    fn take(&mut self, d: &Data, data: &[u8]) -> std::io::Result<()> {
        assert!(d.length <= 4096);
        let mine = |(sqe, _): &(Sqe, usize)| sqe.cid.get() == d.cid;
        let index = self.writes.iter().position(mine).expect("a write");
        let (sqe, got) = &mut self.writes[index];
        let len = sqe.sgl.length.get() as usize;
        assert_eq!(d.ttag, u16::from(d.offset as usize >= len / 8 * 4));
        let at = sqe.lba() as usize * BLOCK + d.offset as usize;
        self.disk[at..at + data.len()].copy_from_slice(data);
        *got += data.len();
        if *got < len {
            return Ok(());
        }
        let (sqe, _) = self.writes.remove(index);
        if self.plan.fault == Fault::Refuse {
            return Ok(());
        }
        let bytes = self.completion(&sqe, Status::SUCCESS);
        self.reply(bytes)
    }
}

/// Keeps what came.
#[derive(Default)]
struct Seen {
    data: Vec<Vec<u8>>,
    done: Vec<Done>,
}

impl Events for Seen {
    fn data(&mut self, slot: u16, offset: u32, bytes: &[u8]) {
        let slot = usize::from(slot);
        self.data.resize(self.data.len().max(slot + 1), Vec::new());
        if offset == 0 {
            self.data[slot].clear();
        }
        assert_eq!(self.data[slot].len(), offset as usize);
        self.data[slot].extend_from_slice(bytes);
    }

    fn done(&mut self, done: Done) {
        self.done.push(done);
    }
}

fn open(address: SocketAddr, plan: Plan, depth: u32) -> IoQueue {
    let host = HostIdentity {
        nqn: "nqn.2024-01.io.example:host".into(),
        id: [7; 16],
    };
    let setup = QueueSetup {
        address,
        options: Options {
            hdr_digest: plan.digests,
            data_digest: plan.digests,
        },
        host: &host,
        subsys_nqn: "nqn.2024-01.io.example:disk",
        cntlid: 1,
        qid: 1,
        depth,
        max_transfer: 65536,
        in_capsule: 8192,
        own_buffers: true,
    };
    IoQueue::connect(&setup, &Deadline::after(Duration::from_secs(10))).unwrap()
}

/// Send and receive until so many commands have ended.
fn turn(queue: &mut IoQueue, seen: &mut Seen, want: usize) -> Result<(), HostError> {
    let end = Instant::now() + Duration::from_secs(20);
    let mut scratch = vec![0; SCRATCH_LEN];
    while seen.done.len() < want {
        queue.send()?;
        if queue.receive(&mut scratch, seen)? == 0 {
            std::thread::yield_now();
        }
        assert!(Instant::now() < end, "{} of {want} came", seen.done.len());
    }
    Ok(())
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 7 + i / 256 + seed * 31) as u8)
        .collect()
}

/// Write several sizes at once, read them back at once.
fn round_trip(plan: Plan) {
    let (address, thread) = start(plan);
    let mut queue = open(address, plan, 8);
    let mut seen = Seen::default();
    // In the capsule, the most that goes there, and by R2T.
    let sizes = [512, 8192, 8704, 65536, 1024, 20480, 4096, 12288];
    assert_eq!(queue.room(), 8);
    for (i, len) in sizes.into_iter().enumerate() {
        let slot = queue.next_slot().unwrap();
        queue.buffer_mut(slot)[..len].copy_from_slice(&pattern(i, len));
        let blocks = (len / BLOCK) as u32;
        assert!(queue.write(i as u64, 1, i as u64 * 128, blocks, len as u32, i % 2 == 0));
    }
    assert!(!queue.write(99, 1, 0, 1, 512, false), "the queue is full");
    assert_eq!((queue.room(), queue.outstanding()), (0, 8));
    turn(&mut queue, &mut seen, 8).unwrap();
    assert_eq!(queue.room(), 8);
    assert!(seen.done.iter().all(|d| d.status.is_success()));
    seen.done.clear();
    let mut slots = Vec::new();
    for (i, len) in sizes.into_iter().enumerate() {
        slots.push(queue.next_slot().unwrap());
        let blocks = (len / BLOCK) as u32;
        assert!(queue.read(i as u64, 1, i as u64 * 128, blocks, len as u32));
    }
    turn(&mut queue, &mut seen, 8).unwrap();
    for done in &seen.done {
        let i = done.user as usize;
        assert!(done.status.is_success());
        assert_eq!(done.slot, slots[i]);
        assert!(
            seen.data[usize::from(done.slot)] == pattern(i, sizes[i]),
            "read {i}"
        );
    }
    drop(queue);
    let disk = thread.join().expect("the model did not panic");
    assert!(disk[128 * BLOCK..][..8192] == pattern(1, 8192));
}

#[test]
fn what_is_written_is_read() {
    round_trip(PLAIN);
    round_trip(Plan {
        success: false,
        reverse: 4,
        ..PLAIN
    });
}

#[test]
fn digests_and_alignment() {
    for cpda in [0, 1, 31] {
        round_trip(Plan {
            digests: true,
            cpda,
            reverse: 2,
            ..PLAIN
        });
    }
}

#[test]
fn bytes_come_as_they_like() {
    for dribble in [1, 7, 23, 4099] {
        round_trip(Plan {
            digests: dribble % 2 == 0 || dribble == 23,
            dribble,
            ..PLAIN
        });
    }
}

/// Far more commands than slots and than a socket's buffer holds.
#[test]
fn many() {
    let plan = Plan {
        reverse: 3,
        ..PLAIN
    };
    let (address, thread) = start(plan);
    let mut queue = open(address, plan, 6);
    let mut seen = Seen::default();
    let (mut sent, mut want) = (0_u64, 0);
    while want < 3000 {
        while queue.room() > 0 {
            let lba = sent % 1000;
            let ok = match sent % 3 {
                0 => queue.write(sent, 1, lba, 32, 16384, false),
                _ => queue.read(sent, 1, lba, 8, 4096),
            };
            assert!(ok);
            sent += 1;
        }
        want += 3;
        turn(&mut queue, &mut seen, want).unwrap();
    }
    let mut users: Vec<u64> = seen.done.iter().map(|d| d.user).collect();
    users.sort_unstable();
    users.dedup();
    assert_eq!(users.len(), seen.done.len(), "each ended once");
    drop(queue);
    thread.join().expect("the model did not panic");
}

#[test]
fn refusals_are_told() {
    let (address, thread) = start(PLAIN);
    let mut queue = open(address, PLAIN, 1);
    let mut seen = Seen::default();
    assert!(queue.plain(5, Sqe::flush(1)));
    turn(&mut queue, &mut seen, 1).unwrap();
    let done = seen.done[0];
    assert_eq!(
        (done.user, done.status, done.result),
        (5, Status::INVALID_OPCODE, 7)
    );
    assert!(
        !queue.read(0, 1, 0, 256, 131_072),
        "more than the largest transfer"
    );
    assert!(!queue.read(0, 1, 0, 1, 0));
    drop(queue);
    thread.join().expect("the model did not panic");
}

/// A refused write's slot stays taken until its data has left.
#[test]
fn a_refused_write() {
    let plan = Plan {
        fault: Fault::Refuse,
        ..PLAIN
    };
    let (address, thread) = start(plan);
    let mut queue = open(address, plan, 1);
    let mut seen = Seen::default();
    for _ in 0..50 {
        seen.done.clear();
        assert!(queue.write(1, 1, 0, 128, 65536, false));
        turn(&mut queue, &mut seen, 1).unwrap();
        assert_eq!(seen.done[0].status, Status::INTERNAL);
        while !queue.send().unwrap() {
            std::thread::yield_now();
        }
        assert_eq!(queue.room(), 1);
    }
    drop(queue);
    thread.join().expect("the model did not panic");
}

fn failure(fault: Fault, write: bool) -> String {
    let plan = Plan {
        fault,
        digests: fault == Fault::DataDigest,
        ..PLAIN
    };
    let (address, thread) = start(plan);
    let mut queue = open(address, plan, 4);
    let mut seen = Seen::default();
    for _ in 0..4 {
        assert!(match write {
            true => queue.write(1, 1, 0, 32, 16384, false),
            false => queue.read(1, 1, 0, 8, 4096),
        });
    }
    let error = turn(&mut queue, &mut seen, 5).unwrap_err();
    drop(queue);
    // It may well have panicked: the connection ended in the middle.
    let _ = thread.join();
    error.to_string()
}

#[test]
fn broken_rules() {
    for (fault, write, want) in [
        (Fault::Twice, false, "it completed a command nobody sent"),
        (Fault::LateData, false, "it sent data nobody asked for"),
        (Fault::Short, false, "it sent less data than was asked for"),
        (Fault::Long, false, "it sent more data than was asked for"),
        (Fault::OutOfOrder, false, "it sent data out of order"),
        (Fault::Greedy, true, "it asked for the same data twice"),
        (
            Fault::Careless,
            true,
            "it completed a write whose data it did not ask for",
        ),
    ] {
        assert_eq!(
            failure(fault, write),
            format!("it broke the protocol: {want}")
        );
    }
    let text = failure(Fault::DataDigest, false);
    assert!(
        text.starts_with("it broke the protocol: data digest is 0x"),
        "{text}"
    );
    assert_eq!(
        failure(Fault::Close, false),
        "it closed the connection during I/O"
    );
}
