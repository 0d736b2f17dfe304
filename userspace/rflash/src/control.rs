// SPDX-License-Identifier: GPL-2.0-only
//! What the driver can be asked: controllers, namespaces, statistics.

use std::net::IpAddr;

use nvme_wire::tenant::Class;

use crate::histogram::Histogram;
use crate::netlink::{Attr, Attrs, Builder, Client, NetlinkError, Port};
use crate::promise;
use crate::uapi::{self, State, attr};

/// A request to connect; everything in it has been checked as far as this side
/// can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    pub transport: String,
    pub traddr: Address,
    pub trsvcid: u16,
    pub nqn: String,
    pub hostnqn: String,
    pub hostid: [u8; 16],
    pub host_traddr: Option<Address>,
    pub nr_io_queues: Option<u32>,
    pub queue_size: Option<u32>,
    pub kato: Option<u32>,
    pub reconnect_delay: Option<u32>,
    pub ctrl_loss_tmo: Option<i32>,
    pub fast_io_fail_tmo: Option<i32>,
    pub hdr_digest: bool,
    pub data_digest: bool,
    pub tenant: Option<Class>,
}

/// An address, with the scope that a link-local one needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub ip: IpAddr,
    pub scope: Option<String>,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.ip)?;
        match &self.scope {
            Some(scope) => write!(f, "%{scope}"),
            None => Ok(()),
        }
    }
}

/// One remote subsystem this machine is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    pub id: u32,
    pub transport: String,
    pub traddr: String,
    pub trsvcid: String,
    pub host_traddr: Option<String>,
    pub nqn: String,
    pub hostnqn: String,
    pub hostid: Option<[u8; 16]>,
    pub queues: u32,
    pub poll_queues: u32,
    pub queue_size: u32,
    pub kato: u32,
    pub reconnect_delay: u32,
    pub ctrl_loss_tmo: i32,
    pub fast_io_fail_tmo: i32,
    pub hdr_digest: bool,
    pub data_digest: bool,
    pub state: State,
    pub reconnects: u32,
    pub last_error: Option<String>,
    pub model: String,
    pub serial: String,
    pub firmware: String,
    pub cntlid: u32,
    pub tenant: promise::Promise,
    pub namespaces: Vec<Namespace>,
    pub queue_map: Vec<Queue>,
}

/// One block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    pub instance: u32,
    pub nsid: u32,
    pub wwid: String,
    pub size_bytes: u64,
    pub block_size: u32,
    pub read_only: bool,
}

impl Namespace {
    /// Name of the block device.
    pub fn device(&self) -> String {
        format!("rflash{}", self.instance)
    }
}

/// One I/O queue and its connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    pub qid: u32,
    pub cpus: String,
    pub src_addr: String,
    pub src_port: u32,
}

/// Counters of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub ios: u64,
    pub bytes: u64,
    pub errors: u64,
    pub latency: Histogram,
}

/// Counters of one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    pub qid: u32,
    pub read: Counters,
    pub write: Counters,
}

/// The driver, or a model of it in tests.
pub trait Control {
    fn connect(&mut self, request: &ConnectRequest) -> Result<Controller, NetlinkError>;
    fn disconnect(&mut self, id: u32) -> Result<(), NetlinkError>;
    fn controllers(&mut self) -> Result<Vec<Controller>, NetlinkError>;
    /// Counters of `/dev/rflashN`, in the order of the queues.
    fn stats(&mut self, instance: u32) -> Result<Vec<QueueStats>, NetlinkError>;
}

impl<P: Port> Control for Client<P> {
    fn connect(&mut self, request: &ConnectRequest) -> Result<Controller, NetlinkError> {
        let answers = self.request(uapi::CMD_CONNECT, encode_connect(request))?;
        answers
            .first()
            .and_then(|answer| controller_of(answer).transpose())
            .unwrap_or(Err(NetlinkError::Malformed("no controller in the answer")))
    }

    fn disconnect(&mut self, id: u32) -> Result<(), NetlinkError> {
        let attrs = Builder::new().u32(attr::CTRL_ID, id);
        self.request(uapi::CMD_DISCONNECT, attrs).map(drop)
    }

    fn controllers(&mut self) -> Result<Vec<Controller>, NetlinkError> {
        let answers = self.dump(uapi::CMD_CTRL_GET, Builder::new())?;
        answers
            .iter()
            .filter_map(|a| controller_of(a).transpose())
            .collect()
    }

    fn stats(&mut self, instance: u32) -> Result<Vec<QueueStats>, NetlinkError> {
        let attrs = Builder::new().u32(attr::NS_INSTANCE, instance);
        let answers = self.dump(uapi::CMD_STATS_GET, attrs)?;
        decode_stats(&answers)
    }
}

fn encode_connect(r: &ConnectRequest) -> Builder {
    let mut b = Builder::new()
        .string(attr::TRANSPORT, &r.transport)
        .string(attr::TRADDR, &r.traddr.to_string())
        .string(attr::TRSVCID, &r.trsvcid.to_string())
        .string(attr::SUBSYS_NQN, &r.nqn)
        .string(attr::HOST_NQN, &r.hostnqn)
        .bytes(attr::HOST_ID, &r.hostid);
    if let Some(address) = &r.host_traddr {
        b = b.string(attr::HOST_TRADDR, &address.to_string());
    }
    for (kind, value) in [
        (attr::NR_IO_QUEUES, r.nr_io_queues),
        (attr::QUEUE_SIZE, r.queue_size),
        (attr::KATO, r.kato),
        (attr::RECONNECT_DELAY, r.reconnect_delay),
    ] {
        if let Some(value) = value {
            b = b.u32(kind, value);
        }
    }
    for (kind, value) in [
        (attr::CTRL_LOSS_TMO, r.ctrl_loss_tmo),
        (attr::FAST_IO_FAIL_TMO, r.fast_io_fail_tmo),
    ] {
        if let Some(value) = value {
            b = b.i32(kind, value);
        }
    }
    b = b
        .flag(attr::HDR_DIGEST, r.hdr_digest)
        .flag(attr::DATA_DIGEST, r.data_digest);
    match &r.tenant {
        Some(class) => promise::encode(b, class),
        None => b,
    }
}

/// The controller in an answer.
fn controller_of(answer: &[u8]) -> Result<Option<Controller>, NetlinkError> {
    for attr in Attrs::new(answer) {
        let attr = attr?;
        if attr.kind == attr::CTRL {
            return decode_controller(&attr).map(Some);
        }
    }
    Ok(None)
}

fn decode_controller(nest: &Attr<'_>) -> Result<Controller, NetlinkError> {
    let mut id = None;
    let mut asked = promise::Numbers::default();
    let mut c = Controller {
        id: 0,
        transport: String::new(),
        traddr: String::new(),
        trsvcid: String::new(),
        host_traddr: None,
        nqn: String::new(),
        hostnqn: String::new(),
        hostid: None,
        queues: 0,
        poll_queues: 0,
        queue_size: 0,
        kato: 0,
        reconnect_delay: 0,
        ctrl_loss_tmo: 0,
        fast_io_fail_tmo: 0,
        hdr_digest: false,
        data_digest: false,
        state: State::New,
        reconnects: 0,
        last_error: None,
        model: String::new(),
        serial: String::new(),
        firmware: String::new(),
        cntlid: 0,
        tenant: promise::Promise::default(),
        namespaces: Vec::new(),
        queue_map: Vec::new(),
    };
    for attr in nest.nested() {
        let a = attr?;
        match a.kind {
            attr::CTRL_ID => id = Some(a.u32()?),
            attr::TRANSPORT => c.transport = a.string(),
            attr::TRADDR => c.traddr = a.string(),
            attr::TRSVCID => c.trsvcid = a.string(),
            attr::HOST_TRADDR => c.host_traddr = Some(a.string()).filter(|s| !s.is_empty()),
            attr::SUBSYS_NQN => c.nqn = a.string(),
            attr::HOST_NQN => c.hostnqn = a.string(),
            attr::HOST_ID => c.hostid = Some(a.fixed("a host id is not 16 bytes long")?),
            attr::NR_IO_QUEUES => c.queues = a.u32()?,
            attr::NR_POLL_QUEUES => c.poll_queues = a.u32()?,
            attr::QUEUE_SIZE => c.queue_size = a.u32()?,
            attr::KATO => c.kato = a.u32()?,
            attr::RECONNECT_DELAY => c.reconnect_delay = a.u32()?,
            attr::CTRL_LOSS_TMO => c.ctrl_loss_tmo = a.i32()?,
            attr::FAST_IO_FAIL_TMO => c.fast_io_fail_tmo = a.i32()?,
            attr::HDR_DIGEST => c.hdr_digest = true,
            attr::DATA_DIGEST => c.data_digest = true,
            attr::STATE => c.state = State::from_wire(a.u32()?),
            attr::RECONNECTS => c.reconnects = a.u32()?,
            attr::LAST_ERROR => c.last_error = Some(a.string()).filter(|s| !s.is_empty()),
            attr::MODEL => c.model = a.string(),
            attr::SERIAL => c.serial = a.string(),
            attr::FIRMWARE => c.firmware = a.string(),
            attr::CNTLID => c.cntlid = a.u32()?,
            attr::TENANT_STATE => c.tenant.state = uapi::TenantState::from_wire(a.u32()?),
            attr::TENANT_GRANTED => c.tenant.granted = promise::decode(&a)?,
            attr::NS => c.namespaces.push(decode_namespace(&a)?),
            attr::QUEUE => c.queue_map.push(decode_queue(&a)?),
            _ => asked.take(&a)?,
        }
    }
    c.tenant.asked = asked.class()?;
    c.id = id.ok_or(NetlinkError::Malformed("a controller has no id"))?;
    c.namespaces.sort_by_key(|ns| ns.instance);
    c.queue_map.sort_by_key(|q| q.qid);
    Ok(c)
}

fn decode_namespace(nest: &Attr<'_>) -> Result<Namespace, NetlinkError> {
    let mut ns = Namespace::default();
    for attr in nest.nested() {
        let a = attr?;
        match a.kind {
            uapi::ns::INSTANCE => ns.instance = a.u32()?,
            uapi::ns::NSID => ns.nsid = a.u32()?,
            uapi::ns::WWID => ns.wwid = a.string(),
            uapi::ns::SIZE_BYTES => ns.size_bytes = a.u64()?,
            uapi::ns::BLOCK_SIZE => ns.block_size = a.u32()?,
            uapi::ns::READ_ONLY => ns.read_only = true,
            _ => {}
        }
    }
    Ok(ns)
}

fn decode_queue(nest: &Attr<'_>) -> Result<Queue, NetlinkError> {
    let mut q = Queue::default();
    for attr in nest.nested() {
        let a = attr?;
        match a.kind {
            uapi::queue::QID => q.qid = a.u32()?,
            uapi::queue::CPUS => q.cpus = a.string(),
            uapi::queue::SRC_ADDR => q.src_addr = a.string(),
            uapi::queue::SRC_PORT => q.src_port = a.u32()?,
            _ => {}
        }
    }
    Ok(q)
}

/// Join the messages of a statistics dump: buckets of a queue and direction
/// may be spread over several.
fn decode_stats(answers: &[Vec<u8>]) -> Result<Vec<QueueStats>, NetlinkError> {
    let mut queues: Vec<QueueStats> = Vec::new();
    for attr in answers.iter().flat_map(|a| Attrs::new(a)) {
        let attr = attr?;
        if attr.kind != attr::STATS {
            continue;
        }
        let (mut qid, mut dir) = (None, None);
        let mut part = Counters::default();
        for inner in attr.nested() {
            let a = inner?;
            match a.kind {
                uapi::stats::QID => qid = Some(a.u32()?),
                uapi::stats::DIR => dir = Some(a.u32()?),
                uapi::stats::IOS => part.ios = a.u64()?,
                uapi::stats::BYTES => part.bytes = a.u64()?,
                uapi::stats::ERRORS => part.errors = a.u64()?,
                uapi::stats::LAT_SUM_NS => part.latency.sum_ns = a.u64()?,
                uapi::stats::LAT_MAX_NS => part.latency.max_ns = a.u64()?,
                uapi::stats::BUCKETS => {
                    for bucket in a.value.chunks(uapi::BUCKET_LEN) {
                        let (index, count) = decode_bucket(bucket)?;
                        part.latency.add(index, count)?;
                    }
                }
                _ => {}
            }
        }
        let qid = qid.ok_or(NetlinkError::Malformed("counters without a queue"))?;
        let at = match queues.iter().position(|q| q.qid == qid) {
            Some(at) => at,
            None => {
                queues.push(QueueStats {
                    qid,
                    ..QueueStats::default()
                });
                queues.len() - 1
            }
        };
        let Some(queue) = queues.get_mut(at) else {
            continue;
        };
        let counters = match dir {
            Some(uapi::STATS_READ) => &mut queue.read,
            Some(uapi::STATS_WRITE) => &mut queue.write,
            _ => return Err(NetlinkError::Malformed("counters without a direction")),
        };
        part.latency.join_buckets(&counters.latency);
        *counters = part;
    }
    queues.sort_by_key(|q| q.qid);
    Ok(queues)
}

fn decode_bucket(bytes: &[u8]) -> Result<(usize, u64), NetlinkError> {
    let bad = NetlinkError::Malformed("a histogram bucket is cut off");
    let (Some(index), Some(Ok(count))) = (
        bytes.first_chunk::<4>(),
        bytes.get(8..).map(<[u8; 8]>::try_from),
    ) else {
        return Err(bad);
    };
    Ok((
        u32::from_ne_bytes(*index) as usize,
        u64::from_ne_bytes(count),
    ))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::netlink::client::tests::{Scripted, ack, answer, done, family};
    use proptest::prelude::*;

    const FAMILY: u16 = 0x23;

    fn sample_nest() -> Builder {
        let namespace = |instance: u32, nsid: u32| {
            Builder::new()
                .u32(uapi::ns::INSTANCE, instance)
                .u32(uapi::ns::NSID, nsid)
                .string(uapi::ns::WWID, "uuid.f81d4fae-7dec-11d0-a765-00a0c91e6bf6")
                .bytes(uapi::ns::PAD, &[])
                .u64(uapi::ns::SIZE_BYTES, 1 << 30)
                .u32(uapi::ns::BLOCK_SIZE, 4096)
                .flag(uapi::ns::READ_ONLY, nsid == 2)
        };
        let queue = |qid: u32| {
            Builder::new()
                .u32(uapi::queue::QID, qid)
                .string(uapi::queue::CPUS, &(qid - 1).to_string())
                .string(uapi::queue::SRC_ADDR, "192.0.2.2")
                .u32(uapi::queue::SRC_PORT, 40000 + qid)
        };
        Builder::new()
            .u32(attr::CTRL_ID, 7)
            .string(attr::TRANSPORT, "tcp")
            .string(attr::TRADDR, "192.0.2.1")
            .string(attr::TRSVCID, "4420")
            .string(attr::SUBSYS_NQN, "nqn.2024-01.io.example:a")
            .string(attr::HOST_NQN, "nqn.2024-01.io.example:host")
            .bytes(attr::HOST_ID, &[9; 16])
            .u32(attr::NR_IO_QUEUES, 2)
            .u32(attr::QUEUE_SIZE, 128)
            .u32(attr::KATO, 5)
            .u32(attr::RECONNECT_DELAY, 10)
            .i32(attr::CTRL_LOSS_TMO, 600)
            .i32(attr::FAST_IO_FAIL_TMO, -1)
            .flag(attr::DATA_DIGEST, true)
            .u32(attr::STATE, 2)
            .u32(attr::RECONNECTS, 1)
            .string(attr::LAST_ERROR, "queue 1: the target reset the connection")
            .string(attr::MODEL, "Linux\u{1b}[2J")
            .u32(attr::CNTLID, 3)
            .u32(attr::TENANT_CLASS, 1)
            .u32(attr::TENANT_P95_US, 500)
            .u32(attr::TENANT_IOPS, 20000)
            .u32(attr::TENANT_READ_PCT, 90)
            .u32(attr::TENANT_BLOCK, 4096)
            .u32(attr::TENANT_STATE, 2)
            .nest(
                attr::TENANT_GRANTED,
                Builder::new()
                    .u32(attr::TENANT_CLASS, 2)
                    .u32(attr::TENANT_WEIGHT, 100),
            )
            .nest(attr::NS, namespace(2, 2))
            .nest(attr::NS, namespace(0, 1))
            .nest(attr::QUEUE, queue(1))
            .nest(attr::QUEUE, queue(2))
            .u32(999, 1)
    }

    /// A controller with two namespaces and two queues.
    pub(crate) fn sample() -> Controller {
        let bytes = Builder::new().nest(attr::CTRL, sample_nest()).into_bytes();
        controller_of(&bytes).unwrap().unwrap()
    }

    fn request() -> ConnectRequest {
        ConnectRequest {
            transport: "tcp".to_string(),
            traddr: Address {
                ip: "fe80::1".parse().unwrap(),
                scope: Some("eth0".to_string()),
            },
            trsvcid: 4420,
            nqn: "nqn.2024-01.io.example:a".to_string(),
            hostnqn: "nqn.2024-01.io.example:host".to_string(),
            hostid: [9; 16],
            host_traddr: None,
            nr_io_queues: Some(2),
            queue_size: None,
            kato: Some(0),
            reconnect_delay: None,
            ctrl_loss_tmo: Some(-1),
            fast_io_fail_tmo: None,
            hdr_digest: true,
            data_digest: false,
            tenant: Some(Class::LatencyCritical {
                p95_us: 500,
                iops: 20000,
                read_pct: 90,
                block: 4096,
            }),
        }
    }

    #[test]
    fn connect_is_encoded_and_its_answer_decoded() {
        let reply = answer(FAMILY, Builder::new().nest(attr::CTRL, sample_nest()));
        let mut port = Scripted::new(family().into_iter().chain([reply, ack(0, None)]));
        let mut client = Client::open(&mut port, "rflash", 1).unwrap();
        let controller = client.connect(&request()).unwrap();
        assert_eq!(controller, sample());
        let sent = &port.sent[1];
        assert_eq!(sent[16..20], [1, 1, 0, 0]);
        let attrs: Vec<_> = Attrs::new(&sent[20..]).map(Result::unwrap).collect();
        let text = |kind| attrs.iter().find(|a| a.kind == kind).map(|a| a.string());
        assert_eq!(text(attr::TRADDR).as_deref(), Some("fe80::1%eth0"));
        assert_eq!(text(attr::TRSVCID).as_deref(), Some("4420"));
        let number = |kind| {
            attrs
                .iter()
                .find(|a| a.kind == kind)
                .map(|a| a.i32().unwrap())
        };
        assert_eq!(number(attr::CTRL_LOSS_TMO), Some(-1));
        assert_eq!(number(attr::KATO), Some(0));
        assert_eq!(number(attr::QUEUE_SIZE), None);
        assert_eq!(number(attr::TENANT_CLASS), Some(1));
        assert_eq!(number(attr::TENANT_READ_PCT), Some(90));
        assert_eq!(number(attr::TENANT_WEIGHT), None);
        assert!(text(attr::HDR_DIGEST).is_some());
        assert!(text(attr::DATA_DIGEST).is_none());
    }

    #[test]
    fn controllers_are_decoded() {
        let c = sample();
        assert_eq!((c.id, c.state, c.queues), (7, State::Live, 2));
        let instances: Vec<_> = c.namespaces.iter().map(|ns| ns.instance).collect();
        assert_eq!(instances, [0, 2], "in the order of the devices");
        assert!(c.namespaces[1].read_only && !c.namespaces[0].read_only);
        assert_eq!(c.queue_map[1].src_port, 40002);
        assert!(c.data_digest && !c.hdr_digest);
        assert!(!c.model.contains('\u{1b}'));
        assert_eq!(c.tenant.asked, request().tenant);
        assert_eq!(c.tenant.state, uapi::TenantState::Refused);
        assert_eq!(
            c.tenant.granted,
            Some(Class::BestEffort { weight: 100 }),
            "by the target's own configuration"
        );
    }

    #[test]
    fn no_controllers() {
        let mut port = Scripted::new(family().into_iter().chain([done(0)]));
        let mut client = Client::open(&mut port, "rflash", 1).unwrap();
        assert_eq!(client.controllers().unwrap(), []);
    }

    #[test]
    fn statistics_are_joined() {
        let part = |dir: u32, ios: u64, buckets: &[(u32, u64)]| {
            let mut bytes = Vec::new();
            for (index, count) in buckets {
                bytes.extend(index.to_ne_bytes());
                bytes.extend([0; 4]);
                bytes.extend(count.to_ne_bytes());
            }
            let nest = Builder::new()
                .u32(uapi::stats::QID, 1)
                .u32(uapi::stats::DIR, dir)
                .u64(uapi::stats::IOS, ios)
                .u64(uapi::stats::BYTES, ios * 4096)
                .u64(uapi::stats::LAT_SUM_NS, ios * 100)
                .u64(uapi::stats::LAT_MAX_NS, 300)
                .bytes(uapi::stats::BUCKETS, &bytes);
            Builder::new().nest(attr::STATS, nest).into_bytes()
        };
        let parts = [
            part(0, 5, &[(20, 2), (30, 1)]),
            part(0, 5, &[(40, 2)]),
            part(1, 1, &[(50, 1)]),
        ];
        let queues = decode_stats(&parts).unwrap();
        assert_eq!(queues.len(), 1);
        let read = &queues[0].read;
        assert_eq!((read.ios, read.bytes, read.latency.count()), (5, 20480, 5));
        assert_eq!(read.latency.mean_ns(), Some(100.0));
        assert_eq!(queues[0].write.ios, 1);
        assert!(decode_stats(&[part(2, 1, &[])]).is_err());
        assert!(decode_stats(&[part(0, 1, &[(592, 1)])]).is_err());
    }

    proptest! {
        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = controller_of(&bytes);
            let _ = controller_of(&Builder::new().bytes(attr::CTRL, &bytes).into_bytes());
            let _ = decode_stats(std::slice::from_ref(&bytes));
            let _ = decode_stats(&[Builder::new().bytes(attr::STATS, &bytes).into_bytes()]);
        }
    }
}

/// A model of the driver for tests of the verbs.
#[cfg(test)]
pub(crate) mod model {
    use super::*;
    use crate::netlink::Refusal;

    #[derive(Default)]
    pub(crate) struct Model {
        pub controllers: Vec<Controller>,
        pub stats: Vec<QueueStats>,
        /// What to answer to connects, the last first; then they succeed.
        pub refusals: Vec<Refusal>,
        pub asked: Vec<ConnectRequest>,
        pub disconnected: Vec<u32>,
        /// Errno of disconnects.
        pub disconnect: i32,
    }

    pub(crate) fn refusal(errno: i32, message: &str) -> Refusal {
        Refusal {
            errno,
            message: Some(message.to_string()).filter(|m| !m.is_empty()),
            ..Refusal::default()
        }
    }

    impl Control for Model {
        fn connect(&mut self, request: &ConnectRequest) -> Result<Controller, NetlinkError> {
            self.asked.push(request.clone());
            match self.refusals.pop() {
                Some(refusal) => Err(NetlinkError::Refused(refusal)),
                None => Ok(self
                    .controllers
                    .first()
                    .cloned()
                    .expect("a controller to return")),
            }
        }

        fn disconnect(&mut self, id: u32) -> Result<(), NetlinkError> {
            self.disconnected.push(id);
            match self.disconnect {
                0 => Ok(()),
                errno => Err(NetlinkError::Refused(refusal(errno, ""))),
            }
        }

        fn controllers(&mut self) -> Result<Vec<Controller>, NetlinkError> {
            Ok(self.controllers.clone())
        }

        fn stats(&mut self, _: u32) -> Result<Vec<QueueStats>, NetlinkError> {
            Ok(self.stats.clone())
        }
    }
}
