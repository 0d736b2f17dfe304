// SPDX-License-Identifier: GPL-2.0-only
//! `rflash load`: commands to a target, and how fast they are answered.

pub mod histogram;
mod job;
mod pace;
mod report;
mod tally;
mod verify;
mod worker;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::Args;
use nvme_host::{Admin, Deadline, HostError, HostIdentity, IoQueue, Options, QueueSetup};
use nvme_wire::fabrics::property;
use nvme_wire::status::Status;

use crate::address;
use crate::cli::OutputArgs;
use crate::control::Address;
use crate::error::Error;
use crate::identity::{self, Keep};
use crate::options::{Problem, check_nqn, check_transport};
use crate::system::System;
use crate::uapi;

use super::{discover, note, print};
use job::{Job, Pattern};
use pace::Addresses;
use report::Report;
use tally::Tally;
use verify::Verifier;
use worker::{Failure, Geometry, Line, Summary, Window, Worker};

/// Time for connecting everything.
const CONNECT: Duration = Duration::from_secs(30);
/// Keep-alive timeout of the controllers, and how often they hear of us.
const KATO: Duration = Duration::from_secs(60);
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Units per connection that --verify keeps track of, unless --size says more.
const VERIFY_BYTES: u64 = 1 << 30;

#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Transport: tcp
    #[arg(short = 't', long, value_name = "NAME", default_value = "tcp")]
    pub transport: String,

    /// Address of the target: IPv4 or IPv6 literal, or host name
    #[arg(short = 'a', long, value_name = "ADDR")]
    pub traddr: String,

    /// Port of the target, 1 to 65535
    #[arg(short = 's', long, value_name = "PORT", default_value = uapi::TCP_PORT)]
    pub trsvcid: String,

    /// NQN of the subsystem
    #[arg(short = 'n', long, value_name = "NQN")]
    pub nqn: String,

    /// Namespace
    #[arg(long, value_name = "ID", default_value_t = 1)]
    pub nsid: u32,

    /// NQN of this host [default: as for connect]
    #[arg(short = 'q', long, value_name = "NQN")]
    pub hostnqn: Option<String>,

    /// Id of this host, a UUID [default: as for connect]
    #[arg(short = 'I', long, value_name = "UUID")]
    pub hostid: Option<String>,

    /// Bytes of each read and write, a multiple of the block size, as in 4k
    #[arg(long, value_name = "SIZE", default_value = "4k")]
    pub bs: String,

    /// What to do, at random or consecutive addresses
    #[arg(long, value_name = "PATTERN", default_value = "randread")]
    pub rw: Pattern,

    /// Share of reads in rw and randrw, per cent [default: 70]
    #[arg(long, value_name = "PERCENT")]
    pub read_pct: Option<u32>,

    /// Commands outstanding per connection, 1 to 4096
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub qd: u32,

    /// Connections, each an I/O queue, 1 to 16384
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub connections: u32,

    /// Begin so many commands per second, whether or not the last have ended
    ///
    /// Latencies count from when a command should have begun, so that one the
    /// target holds up is not left out. Without a rate a command begins when
    /// another ends.
    #[arg(long, value_name = "IOPS")]
    pub rate: Option<f64>,

    /// Seconds to measure
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub time: f64,

    /// Seconds before measuring begins
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub warmup: f64,

    /// CPUs to run on, as in 0,2-5: one thread on each [default: one thread, on any]
    #[arg(long, value_name = "LIST")]
    pub cpu: Option<String>,

    /// Use only so much of the namespace, from its start, as in 1g
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,

    /// Check that what is read is what was written in this run
    ///
    /// Ends with reading everything that was written. Uses the first 1 GiB
    /// unless --size says otherwise.
    #[arg(long)]
    pub verify: bool,

    /// Guard headers with a CRC32C digest
    #[arg(short = 'g', long)]
    pub hdr_digest: bool,

    /// Guard data with a CRC32C digest
    #[arg(short = 'G', long)]
    pub data_digest: bool,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// A target that answered.
struct Target {
    admins: Vec<Admin>,
    lines: Vec<Line>,
    geometry: Geometry,
}

/// Who connects to what.
struct Peer {
    address: Address,
    port: u16,
    socket: SocketAddr,
    host: HostIdentity,
    nqn: String,
}

pub fn run(system: &System, args: &LoadArgs) -> Result<(), Error> {
    let wrong = |key| move |text| Problem { key, text }.into_error();
    check_transport(&args.transport).map_err(Problem::into_error)?;
    check_nqn("nqn", &args.nqn).map_err(Problem::into_error)?;
    if let Some(nqn) = &args.hostnqn {
        check_nqn("hostnqn", nqn).map_err(Problem::into_error)?;
    }
    let port = address::parse_port(&args.trsvcid).map_err(wrong("trsvcid"))?;
    let id = args.hostid.as_deref().map(identity::parse_id).transpose();
    let id = id.map_err(wrong("hostid"))?;
    let job = Job::of(args)?;
    let target = address::parse(&args.traddr).map_err(wrong("traddr"))?;
    let found = address::resolve(&target, CONNECT).map_err(wrong("traddr"))?;
    let Some(address) = found.into_iter().next() else {
        let text = format!("the host name {:?} has no address", args.traddr);
        return Err(wrong("traddr")(text));
    };
    let socket = address::socket_addr(&address, port).map_err(wrong("traddr"))?;
    let who = identity::of(system, args.hostnqn.as_deref(), id, Keep::Try)?;
    let peer = Peer {
        address,
        port,
        socket,
        host: HostIdentity {
            nqn: who.nqn,
            id: who.id,
        },
        nqn: args.nqn.clone(),
    };
    let target = connect(&peer, args, &job)?;
    measure(&peer, args, &job, target)
}

impl Peer {
    fn name(&self) -> String {
        format!("{} port {}", self.address, self.port)
    }

    /// What went wrong, in a sentence.
    fn sentence(&self, error: &HostError) -> Error {
        match error {
            HostError::Status {
                command: "Connect",
                status,
            } if status.code() == Status::CONNECT_INVALID_PARAMETERS.code() => Error::new(format!(
                "{} has no subsystem {:?} for this host: check -n (`rflash discover -a {}` lists them)",
                self.name(),
                self.nqn,
                self.address
            )),
            error => discover::sentence(&self.address, self.port, &self.host, error),
        }
    }

    fn failure(&self, failure: &Failure) -> Error {
        let at = self.name();
        Error::new(match failure {
            Failure::Host(error) => return self.sentence(error),
            Failure::Status { write, status } => {
                let what = if *write { "write" } else { "read" };
                format!("{at} failed a {what}: {status}")
            }
            Failure::Wrong(text) => format!("{at} lost data: {text}"),
            Failure::Stuck => format!(
                "{at} stopped answering: commands are outstanding for 30 s (5 s at the end)"
            ),
            Failure::System(what, errno) => format!("{what}: {errno}"),
        })
    }
}

/// Make as many controllers as the connections need, and the connections.
fn connect(peer: &Peer, args: &LoadArgs, job: &Job) -> Result<Target, Error> {
    let deadline = Deadline::after(CONNECT);
    let told = |error: HostError| peer.sentence(&error);
    let options = Options {
        hdr_digest: args.hdr_digest,
        data_digest: args.data_digest,
    };
    let mut admins = Vec::new();
    let mut lines = Vec::new();
    let mut geometry = None;
    let run = Instant::now();
    while (lines.len() as u32) < job.connections {
        let mut admin =
            Admin::connect(peer.socket, options, &peer.host, &peer.nqn, KATO, &deadline)
                .map_err(told)?;
        let identity = admin.identify_controller(&deadline).map_err(told)?;
        let cap = admin
            .property("reading CAP", property::CAP, true, &deadline)
            .map_err(told)?;
        limits(peer, job, cap, &identity)?;
        let space = match geometry {
            Some(space) => space,
            None => Space::of(&mut admin, peer, args, job, &deadline)?,
        };
        geometry = Some(space);
        let in_capsule = match identity.icdoff.get() {
            0 => identity.in_capsule_data().map_err(|e| told(e.into()))?,
            _ => 0,
        };
        let missing = job.connections - lines.len() as u32;
        let wanted = u16::try_from(missing).unwrap_or(u16::MAX);
        let granted = admin.set_queue_count(wanted, &deadline).map_err(told)?;
        for qid in 1..=granted.min(wanted) {
            let setup = QueueSetup {
                address: peer.socket,
                options,
                host: &peer.host,
                subsys_nqn: &peer.nqn,
                cntlid: admin.cntlid,
                qid,
                depth: job.depth,
                max_transfer: job.bytes,
                in_capsule,
                own_buffers: job.verify && job.writes(),
            };
            let queue = IoQueue::connect(&setup, &deadline).map_err(told)?;
            lines.push(space.line(queue, lines.len() as u64, job, run));
        }
        admins.push(admin);
    }
    let Some(space) = geometry else {
        return Err(Error::new("no connection was asked for"));
    };
    Ok(Target {
        admins,
        lines,
        geometry: space.geometry,
    })
}

/// What the controller can't do.
fn limits(
    peer: &Peer,
    job: &Job,
    cap: u64,
    identity: &nvme_wire::identify::Controller,
) -> Result<(), Error> {
    // MQES is zero-based, and a queue of n entries holds n - 1 commands.
    let entries = (cap & 0xffff) as u32 + 1;
    let maxcmd = match identity.maxcmd.get() {
        0 => u32::MAX,
        n => n.into(),
    };
    let most = (entries - 1).max(1).min(maxcmd);
    if job.depth > most {
        return Err(Error::new(format!(
            "--qd: {} takes {most} commands per queue, not {}",
            peer.name(),
            job.depth
        )));
    }
    let mpsmin = ((cap >> 48) & 0xf) as u8;
    match identity.max_transfer(mpsmin) {
        Some(most) if u64::from(job.bytes) > most => Err(Error::new(format!(
            "--bs: {} takes at most {most} bytes per command, not {}",
            peer.name(),
            job.bytes
        ))),
        _ => Ok(()),
    }
}

/// The part of the namespace that is used.
#[derive(Clone, Copy)]
struct Space {
    geometry: Geometry,
    /// Transfers that fit.
    units: u64,
}

impl Space {
    fn of(
        admin: &mut Admin,
        peer: &Peer,
        args: &LoadArgs,
        job: &Job,
        deadline: &Deadline,
    ) -> Result<Space, Error> {
        let namespace = admin
            .identify_namespace(args.nsid, deadline)
            .map_err(|e| match e {
                HostError::Status { .. } => Error::new(format!(
                    "--nsid: {} has no namespace {}",
                    peer.name(),
                    args.nsid
                )),
                e => peer.sentence(&e),
            })?;
        let geometry = namespace.geometry();
        let (block, capacity) = geometry.map_err(|_| {
            let text = format!("--nsid: {} has no namespace {}", peer.name(), args.nsid);
            Error::new(text)
        })?;
        if job.bytes % block != 0 {
            return Err(Error::new(format!(
                "--bs: {} is no multiple of the namespace's blocks of {block} bytes",
                args.bs
            )));
        }
        if job.bytes / block > 65536 {
            return Err(Error::new(format!(
                "--bs: a command moves 65536 blocks of {block} bytes at most"
            )));
        }
        let wanted = match job.size {
            Some(size) if size > capacity => {
                return Err(Error::new(format!(
                    "--size: the namespace has {capacity} bytes, not {size}"
                )));
            }
            Some(size) => size,
            None if job.verify => capacity.min(VERIFY_BYTES),
            None => capacity,
        };
        let units = wanted / u64::from(job.bytes);
        let needed = match job.verify {
            true => u64::from(job.connections) * u64::from(job.depth),
            false => u64::from(job.connections),
        };
        if units < needed.max(1) {
            return Err(Error::new(format!(
                "{wanted} bytes are too few for {} connections with {} commands of {} bytes each",
                job.connections, job.depth, job.bytes
            )));
        }
        Ok(Space {
            geometry: Geometry {
                nsid: args.nsid,
                block,
            },
            units,
        })
    }

    /// A connection with its addresses: consecutive ones and those that are
    /// verified have a part of their own, random ones go everywhere.
    fn line(&self, queue: IoQueue, index: u64, job: &Job, run: Instant) -> Line {
        let each = self.units / u64::from(job.connections);
        let (first, count) = match job.pattern.random() && !job.verify {
            true => (0, self.units),
            false => (index * each, each),
        };
        let addresses = Addresses::new(first, count, job.pattern.random());
        let tag = run.elapsed().as_nanos() as u64 ^ u64::from(std::process::id());
        let verifier = job
            .verify
            .then(|| Verifier::new(first, count, job.depth, job.bytes, tag));
        Line::new(queue, addresses, verifier)
    }
}

fn measure(peer: &Peer, args: &LoadArgs, job: &Job, target: Target) -> Result<(), Error> {
    let Target {
        mut admins,
        lines,
        geometry,
    } = target;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|e| Error::new(format!("signals cannot be caught: {e}")))?;
    }
    let threads = job.threads();
    let connections = lines.len();
    let mut parts: Vec<Vec<Line>> = (0..threads).map(|_| Vec::new()).collect();
    for (index, line) in lines.into_iter().enumerate() {
        if let Some(part) = parts.get_mut(index % threads) {
            part.push(line);
        }
    }
    let (sender, receiver) = channel();
    let start = worker::soon();
    let (windows, results) = std::thread::scope(|scope| {
        let mut handles = Vec::new();
        for (index, lines) in parts.into_iter().enumerate() {
            let worker = Worker {
                job,
                geometry,
                lines,
                cpu: job.cpus.get(index).copied(),
                index,
                threads,
                connections,
                windows: sender.clone(),
                stop: &stop,
            };
            let stop = &stop;
            handles.push(scope.spawn(move || {
                let result = worker.run(start);
                if result.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
                result
            }));
        }
        drop(sender);
        let watch = !args.output.format.is_json() && std::io::stderr().is_terminal();
        let windows = gather(&receiver, &mut admins, job, threads, watch);
        let results: Vec<_> = handles.into_iter().map(|h| h.join()).collect();
        (windows, results)
    });
    let elapsed = start.elapsed().saturating_sub(job.warmup);
    let mut summary = Summary::default();
    for result in results {
        match result {
            Ok(Ok(one)) => {
                summary.behind += one.behind;
                summary.verified += one.verified;
            }
            Ok(Err(failure)) => return Err(peer.failure(&failure)),
            Err(_) => return Err(Error::new("a thread of the load generator died")),
        }
    }
    let mut total = Tally::default();
    for window in &windows {
        total.merge(window);
    }
    if total.count() == 0 {
        return Err(Error::new(format!(
            "nothing was completed in {} s",
            elapsed.min(job.time).as_secs_f64()
        )));
    }
    let report = Report {
        job,
        geometry,
        target: peer.name(),
        nqn: &peer.nqn,
        total: &total,
        windows: &windows,
        seconds: elapsed.min(job.time).as_secs_f64(),
        summary: &summary,
    };
    print(&match args.output.format.is_json() {
        true => report.json(),
        false => report.text(),
    })
}

/// Collect the seconds of all threads until the last has ended; meanwhile tell
/// the controllers that we live.
fn gather(
    receiver: &Receiver<Window>,
    admins: &mut [Admin],
    job: &Job,
    threads: usize,
    watch: bool,
) -> Vec<Tally> {
    let mut windows: Vec<(Tally, usize)> = Vec::new();
    let mut told = Instant::now();
    loop {
        match receiver.recv_timeout(Duration::from_secs(1)) {
            Ok(Window { second, tally }) => {
                let second = second as usize;
                while windows.len() <= second {
                    windows.push((Tally::default(), 0));
                }
                if let Some((sum, count)) = windows.get_mut(second) {
                    sum.merge(&tally);
                    *count += 1;
                    if watch && *count == threads && sum.count() > 0 {
                        note(&report::progress(second + 1, sum, job.time.as_secs_f64()));
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if told.elapsed() > KEEP_ALIVE {
            told = Instant::now();
            for admin in admins.iter_mut() {
                // A controller that is gone shows on its queues.
                let _ = admin.keep_alive(&Deadline::after(Duration::from_secs(5)));
            }
        }
    }
    let mut windows: Vec<Tally> = windows.into_iter().map(|(tally, _)| tally).collect();
    // What a run of whole seconds closes with.
    while windows.last().is_some_and(|w| w.count() == 0) {
        windows.pop();
    }
    windows
}
