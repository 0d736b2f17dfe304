// SPDX-License-Identifier: GPL-2.0-only
//! One queue: a TCP connection and the commands on it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use nvme_wire::command::{Cqe, Sqe};
use nvme_wire::digest;
use nvme_wire::pdu::{
    self, Data, Frame, HEAD_MAX, IcReq, IcResp, Link, Pdu, R2t, Side, TERM_DATA_MAX,
};
use zerocopy::little_endian::U16;

use crate::error::{Deadline, HostError, Stage};

/// What to ask for when a connection is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    pub hdr_digest: bool,
    pub data_digest: bool,
}

/// A command with its data.
pub struct Request<'a> {
    /// What to call it in errors.
    pub name: &'static str,
    pub sqe: Sqe,
    pub data: RequestData<'a>,
}

/// Data of a command.
pub enum RequestData<'a> {
    None,
    /// Sent in the capsule.
    InCapsule(&'a [u8]),
    /// Sent when the controller asks for it.
    Write(&'a [u8]),
    /// Filled by the controller, all of it.
    Read(&'a mut [u8]),
}

impl<'a> Request<'a> {
    pub fn new(name: &'static str, sqe: Sqe) -> Request<'a> {
        Request {
            name,
            sqe,
            data: RequestData::None,
        }
    }

    pub fn reading(name: &'static str, sqe: Sqe, into: &'a mut [u8]) -> Request<'a> {
        Request {
            name,
            sqe,
            data: RequestData::Read(into),
        }
    }

    /// The data goes along in the capsule; the SQE must say so.
    pub fn in_capsule(name: &'static str, sqe: Sqe, data: &'a [u8]) -> Request<'a> {
        Request {
            name,
            sqe,
            data: RequestData::InCapsule(data),
        }
    }

    pub fn writing(name: &'static str, sqe: Sqe, data: &'a [u8]) -> Request<'a> {
        Request {
            name,
            sqe,
            data: RequestData::Write(data),
        }
    }
}

/// One queue. Commands run one at a time.
pub struct Connection {
    stream: TcpStream,
    link: Link,
    next_cid: u16,
    out: Vec<u8>,
}

impl Connection {
    /// Open a connection and agree on its parameters.
    pub fn open(
        address: SocketAddr,
        options: Options,
        deadline: &Deadline,
    ) -> Result<Connection, HostError> {
        Connection::open_for(address, options, 1, deadline)
    }

    /// The same for who takes up to `max_r2t` R2Ts at a time per command.
    pub(crate) fn open_for(
        address: SocketAddr,
        options: Options,
        max_r2t: u64,
        deadline: &Deadline,
    ) -> Result<Connection, HostError> {
        let open = |e| HostError::io(Stage::Open, e, deadline);
        let left = deadline.left().map_err(open)?;
        let stream = TcpStream::connect_timeout(&address, left).map_err(open)?;
        stream.set_nodelay(true).map_err(open)?;
        let mut connection = Connection {
            stream,
            link: Link::default(),
            next_cid: 0,
            out: Vec::new(),
        };
        connection.initialise(options, max_r2t, deadline)?;
        Ok(connection)
    }

    /// The socket and what was agreed on, for who does the rest.
    pub(crate) fn into_parts(self) -> (TcpStream, Link) {
        (self.stream, self.link)
    }

    fn initialise(
        &mut self,
        options: Options,
        max_r2t: u64,
        deadline: &Deadline,
    ) -> Result<(), HostError> {
        let stage = Stage::Initialise;
        let asked = IcReq {
            hdr_digest: options.hdr_digest,
            data_digest: options.data_digest,
            align: 4,
            max_r2t,
        };
        self.out.clear();
        pdu::head_bytes(&asked.pdu(), &self.link, &mut self.out);
        self.flush(stage, deadline)?;
        let mut head = [0; HEAD_MAX];
        let (frame, got) = self.receive_head(&mut head, stage, deadline)?;
        let granted: IcResp = match got {
            Pdu::IcResp(resp) => resp,
            Pdu::Term(term) => {
                self.skip(frame.data_len, stage, deadline)?;
                return Err(HostError::Terminated(term));
            }
            _ => return Err(HostError::Protocol("its first PDU is no ICResp")),
        };
        granted.check_against(&asked)?;
        self.link = Link {
            open: true,
            hdr_digest: granted.hdr_digest,
            data_digest: granted.data_digest,
            send_align: granted.align,
            max_h2c_data: granted.max_h2c_data,
            ..Link::default()
        };
        Ok(())
    }

    /// Run a command to its end. A completion with an error status is an error;
    /// so is a read that does not fill its buffer.
    pub fn run(&mut self, request: Request<'_>, deadline: &Deadline) -> Result<Cqe, HostError> {
        let Request {
            name,
            mut sqe,
            mut data,
        } = request;
        let stage = Stage::Command(name);
        let cid = self.next_cid;
        self.next_cid = self.next_cid.wrapping_add(1);
        sqe.cid = U16::new(cid);
        self.send_command(&sqe, &data, stage, deadline)?;
        let mut received = 0;
        loop {
            let mut head = [0; HEAD_MAX];
            let (frame, got) = self.receive_head(&mut head, stage, deadline)?;
            match got {
                Pdu::C2hData(d) => {
                    let RequestData::Read(into) = &mut data else {
                        return Err(HostError::Protocol("it sent data nobody asked for"));
                    };
                    self.receive_data(&frame, &d, cid, received, into, stage, deadline)?;
                    received += d.length as usize;
                    if d.success {
                        return complete(name, Cqe::new(cid, Status::SUCCESS, 0), &data, received);
                    }
                }
                Pdu::CapsuleResp(cqe) => {
                    let cqe = *cqe;
                    if cqe.cid.get() != cid {
                        return Err(HostError::Protocol("it completed a command nobody sent"));
                    }
                    return complete(name, cqe, &data, received);
                }
                Pdu::R2t(r2t) => {
                    let RequestData::Write(from) = data else {
                        return Err(HostError::Protocol("it asked for data there is not"));
                    };
                    self.send_data(&r2t, cid, from, stage, deadline)?;
                }
                Pdu::Term(term) => {
                    self.skip(frame.data_len.min(TERM_DATA_MAX), stage, deadline)?;
                    return Err(HostError::Terminated(term));
                }
                _ => return Err(HostError::Protocol("it sent a PDU that has no place here")),
            }
        }
    }

    fn send_command(
        &mut self,
        sqe: &Sqe,
        data: &RequestData<'_>,
        stage: Stage,
        deadline: &Deadline,
    ) -> Result<(), HostError> {
        let inline: &[u8] = match data {
            RequestData::InCapsule(bytes) => bytes,
            _ => &[],
        };
        let len = u32::try_from(inline.len())
            .map_err(|_| HostError::Protocol("too much data for a capsule"))?;
        self.out.clear();
        pdu::head_bytes(
            &pdu::cmd_pdu(sqe, len, &self.link),
            &self.link,
            &mut self.out,
        );
        self.out.extend_from_slice(inline);
        if self.link.data_digest && !inline.is_empty() {
            self.out
                .extend_from_slice(&digest::to_wire(digest::of(inline)));
        }
        self.flush(stage, deadline)
    }

    /// Answer an R2T.
    fn send_data(
        &mut self,
        r2t: &R2t,
        cid: u16,
        from: &[u8],
        stage: Stage,
        deadline: &Deadline,
    ) -> Result<(), HostError> {
        let begin = r2t.offset as usize;
        let wanted = begin
            .checked_add(r2t.length as usize)
            .and_then(|end| from.get(begin..end));
        let Some(wanted) = wanted.filter(|_| r2t.cid == cid) else {
            return Err(HostError::Protocol("it asked for data there is not"));
        };
        let most = (self.link.max_h2c_data as usize).max(4);
        let mut offset = r2t.offset;
        let mut chunks = wanted.chunks(most).peekable();
        while let Some(chunk) = chunks.next() {
            let data = Data {
                cid,
                ttag: r2t.ttag,
                offset,
                length: chunk.len() as u32,
                last: chunks.peek().is_none(),
                success: false,
            };
            self.out.clear();
            let header = pdu::data_pdu(&data, Side::Controller, &self.link);
            pdu::head_bytes(&header, &self.link, &mut self.out);
            self.out.extend_from_slice(chunk);
            if self.link.data_digest {
                self.out
                    .extend_from_slice(&digest::to_wire(digest::of(chunk)));
            }
            self.flush(stage, deadline)?;
            offset = offset.wrapping_add(chunk.len() as u32);
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn receive_data(
        &mut self,
        frame: &Frame,
        data: &Data,
        cid: u16,
        received: usize,
        into: &mut [u8],
        stage: Stage,
        deadline: &Deadline,
    ) -> Result<(), HostError> {
        if data.cid != cid {
            return Err(HostError::Protocol(
                "it sent data for a command nobody sent",
            ));
        }
        if data.offset as usize != received {
            return Err(HostError::Protocol("it sent data out of order"));
        }
        let begin = data.offset as usize;
        let place = begin
            .checked_add(data.length as usize)
            .and_then(|end| into.get_mut(begin..end));
        let Some(place) = place else {
            return Err(HostError::Protocol("it sent more data than was asked for"));
        };
        self.skip(
            frame.data_offset.saturating_sub(frame.head_len),
            stage,
            deadline,
        )?;
        self.read_exact(place, stage, deadline)?;
        if frame.data_digest {
            let computed = digest::of(place);
            let mut wire = [0; digest::LEN];
            self.read_exact(&mut wire, stage, deadline)?;
            digest::compare("data", computed, &wire)?;
        }
        Ok(())
    }

    /// Receive and decode the head of a PDU.
    fn receive_head<'a>(
        &mut self,
        head: &'a mut [u8; HEAD_MAX],
        stage: Stage,
        deadline: &Deadline,
    ) -> Result<(Frame, Pdu<'a>), HostError> {
        let (common, _) = head.split_at_mut(size_of::<pdu::CommonHeader>());
        self.read_exact(common, stage, deadline)?;
        let frame = pdu::frame(pdu::common_header(common)?, Side::Host, &self.link)?;
        let rest = head.get_mut(size_of::<pdu::CommonHeader>()..frame.head_len);
        let rest = rest.ok_or(HostError::Protocol("its header is too long"))?;
        self.read_exact(rest, stage, deadline)?;
        Ok((frame, pdu::decode(&frame, head)?))
    }

    fn skip(&mut self, mut len: usize, stage: Stage, deadline: &Deadline) -> Result<(), HostError> {
        let mut sink = [0; 256];
        while len > 0 {
            let n = len.min(sink.len());
            self.read_exact(sink.get_mut(..n).unwrap_or_default(), stage, deadline)?;
            len -= n;
        }
        Ok(())
    }

    fn read_exact(
        &mut self,
        mut into: &mut [u8],
        stage: Stage,
        deadline: &Deadline,
    ) -> Result<(), HostError> {
        let failed = |e| HostError::io(stage, e, deadline);
        while !into.is_empty() {
            let left = deadline.left().map_err(failed)?;
            self.stream.set_read_timeout(Some(left)).map_err(failed)?;
            match self.stream.read(into) {
                Ok(0) => return Err(HostError::Closed { stage }),
                Ok(n) => into = into.get_mut(n..).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(HostError::Closed { stage });
                }
                Err(e) => return Err(failed(e)),
            }
        }
        Ok(())
    }

    /// Send what stands in `out`.
    fn flush(&mut self, stage: Stage, deadline: &Deadline) -> Result<(), HostError> {
        let failed = |e| HostError::io(stage, e, deadline);
        let mut bytes = self.out.as_slice();
        while !bytes.is_empty() {
            let left = deadline.left().map_err(failed)?;
            self.stream.set_write_timeout(Some(left)).map_err(failed)?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(HostError::Closed { stage }),
                Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                    ) =>
                {
                    return Err(HostError::Closed { stage });
                }
                Err(e) => return Err(failed(e)),
            }
        }
        Ok(())
    }
}

use nvme_wire::status::Status;

fn complete(
    name: &'static str,
    cqe: Cqe,
    data: &RequestData<'_>,
    received: usize,
) -> Result<Cqe, HostError> {
    let status = cqe.status();
    if !status.is_success() {
        return Err(HostError::Status {
            command: name,
            status,
        });
    }
    match data {
        RequestData::Read(into) if into.len() != received => {
            Err(HostError::Protocol("it sent less data than was asked for"))
        }
        _ => Ok(cqe),
    }
}
