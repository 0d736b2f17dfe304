// SPDX-License-Identifier: GPL-2.0-only
//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::options::ConnectOptions;
use crate::uapi;
use crate::verbs::calibrate::CalibrateArgs;
use crate::verbs::load::LoadArgs;
use crate::verbs::tenant::TenantArgs;

/// Remote flash as local block devices, over NVMe/TCP
///
/// `rflash connect` makes the namespaces of a remote NVMe subsystem block
/// devices /dev/rflash0, /dev/rflash1 and so on, which are partitioned,
/// formatted and mounted like any disk. It needs the kernel module of the same
/// name (`modprobe rflash`) and, for all but list, show, stats and discover,
/// root.
#[derive(Debug, Parser)]
#[command(
    name = "rflash",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_long_help = "\
Exit status: 0 done, 1 failed (one sentence on stderr says why), 2 wrong usage.

Example:
  rflash discover -a 192.0.2.10
  rflash connect -a 192.0.2.10 -n nqn.2024-01.io.example:flash1
  rflash list
  rflash disconnect -d rflash0"
)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Connect to a subsystem and make its namespaces block devices
    ///
    /// Prints the path of each device and returns when all of them can be used.
    /// Each step of the attempt (the connection, each queue, the scan for
    /// namespaces) is bounded by the keep-alive timeout or a small multiple of
    /// it. It is safe to repeat: what is connected already is left as it is, and
    /// its devices are printed.
    /// When the connection is lost, I/O waits and is issued again after the
    /// reconnect; the three timeouts say how often and for how long that is tried.
    #[command(after_long_help = "\
Examples:
  rflash connect -t tcp -a 192.0.2.10 -n nqn.2024-01.io.example:flash1
  rflash connect -a [2001:db8::10] -s 4420 -n nqn.2024-01.io.example:flash1 -i 4 -l -1 -g -G
  rflash connect -a 192.0.2.10 -n nqn.2024-01.io.example:db --class lc \\
    --slo-p95 500 --slo-iops 20000 --slo-read-pct 90")]
    Connect(ConnectArgs),

    /// Disconnect from subsystems and remove their block devices
    ///
    /// I/O that the driver has accepted is completed first as long as the target
    /// answers, and fails otherwise. A device is not removed alone: -d rflash0
    /// removes the controller behind rflash0 and with it all other devices of
    /// that controller; what is removed is printed. Unmount file systems first.
    #[command(after_long_help = "\
Examples:
  rflash disconnect -d rflash0
  rflash disconnect -n nqn.2024-01.io.example:flash1
  rflash disconnect --all")]
    Disconnect(DisconnectArgs),

    /// List all block devices with their subsystems
    ///
    /// One line for each device; a controller that has no namespaces has one
    /// too, with `-` (null in JSON) for the device. `queues` is what the target
    /// granted, `reconnects` how often the connection had to be made again. -v adds
    /// the class of tenant that the server has this host in, and what it promised
    /// or refused at the last connect.
    #[command(after_long_help = "\
Examples:
  rflash list
  rflash list -v
  rflash list -o json | jq -r '.[] | select(.state != \"live\") | .device'")]
    List(ListArgs),

    /// Show everything about one block device
    ///
    /// Beside what list says: the host's and the target's identity, timeouts in
    /// seconds, digests, the last error, and for each I/O queue the CPUs that
    /// use it and the local address and port of its connection, which is what
    /// flow steering and pinning need.
    #[command(after_long_help = "\
Example:
  rflash show rflash0 -o json")]
    Show(ShowArgs),

    /// Show counters and latencies of one block device
    ///
    /// Reads and writes since the device was made: requests, bytes, errors, and
    /// latencies in microseconds from the block layer's start of a request to
    /// its completion. Percentiles come from a histogram; they are never below
    /// the true value and at most 6.25 % above. Discards and write zeroes count
    /// as writes, without bytes; flushes do not count.
    #[command(after_long_help = "\
Examples:
  rflash stats rflash0
  rflash stats rflash0 --queues -o json
  rflash stats rflash0 --watch=5      (what happened in each 5 seconds, until Ctrl-C)")]
    Stats(StatsArgs),

    /// Ask a discovery controller what there is to connect to
    ///
    /// Reads the whole discovery log of a target, from user space: neither the
    /// kernel module nor root is needed. A target shows each host what that host
    /// may use, so the host NQN matters.
    #[command(after_long_help = "\
Examples:
  rflash discover -a 192.0.2.10
  rflash discover -t tcp -a flash.example.com -s 8009 -o json")]
    Discover(DiscoverArgs),

    /// Give a target work and measure how fast it is done
    ///
    /// A load generator in user space: neither the kernel module nor root is
    /// needed. It keeps --qd commands outstanding on each connection or, with
    /// --rate, begins commands at a fixed rate. Writes destroy what is on the
    /// namespace. Percentiles are never below the true value and at most 1.6 %
    /// above. The first command that fails ends the run.
    #[command(after_long_help = "\
Examples:
  rflash load -a 192.0.2.10 -n nqn.2024-01.io.example:flash1
  rflash load -a 192.0.2.10 -n nqn.2024-01.io.example:flash1 --rw randrw --read-pct 90 --rate 50000
  rflash load -a 192.0.2.10 -n nqn.2024-01.io.example:flash1 --rw randrw --verify --size 1g
  rflash load -a 192.0.2.10 -n nqn.2024-01.io.example:flash1 --connections 8 --cpu 2-5 -o json")]
    Load(LoadArgs),

    /// Measure what requests cost on a flash device, for rflashd
    ///
    /// Fills the device, writes at random until it is steady, then measures
    /// read latency at many rates and shares of reads, and fits a cost model:
    /// tokens of a write, and how many tokens a second the device bears at each
    /// p95 read latency. rflashd takes it as `cost-model`. It takes a quarter of
    /// an hour beside the filling, and destroys all data on the device. What was
    /// measured is kept in FILE.toml.state until the model is there.
    /// With --model a device of the flash model is measured in virtual time.
    #[command(after_long_help = "\
Examples:
  rflash calibrate /dev/nvme0n1 --out p3600.toml --plot p3600.svg --consent
  rflash calibrate /dev/nvme0n1 --out p3600.toml --consent --resume
  rflash calibrate --model million --out million.toml")]
    Calibrate(CalibrateArgs),

    /// Show and change what a flash server on this host promises its tenants
    ///
    /// Talks to rflashd by its admin socket, which needs root. A tenant is
    /// latency-critical (p95 latency of reads, IOPS, share of reads, size) or
    /// best-effort (a share of what is left). A promise that the device can't
    /// keep is refused, with what would fit. What is changed here lasts until
    /// the server stops; its configuration lasts longer, see rflashd.toml(5).
    #[command(after_long_help = "\
Examples:
  rflash tenant list
  rflash tenant add db -n nqn.2024-01.io.example:db --class lc --slo-p95 500 --slo-iops 20000
  rflash tenant set db --slo-iops 30000
  rflash tenant set backup --weight 50
  rflash tenant explain db -o json
  rflash tenant remove db")]
    Tenant(TenantArgs),

    /// Connect to all subsystems listed in /etc/rflash/*.toml
    ///
    /// At boot rflash-connect-all.service runs it. Files are read in the order
    /// of their names; keys are the long options of `rflash connect`. An entry
    /// that is wrong or fails is reported, with its file and line, and the rest
    /// is connected; then the exit status is 1. Prints the path of each device.
    #[command(after_long_help = "\
Example of a file:
  [[connect]]
  traddr = \"192.0.2.10\"
  nqn = \"nqn.2024-01.io.example:flash1\"
  ctrl-loss-tmo = -1")]
    ConnectAll(ConnectAllArgs),

    /// Print a completion script for a shell
    #[command(after_long_help = "\
Example:
  rflash completions bash > /usr/share/bash-completion/completions/rflash")]
    Completions { shell: clap_complete::Shell },
}

/// For people or for programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    #[default]
    #[value(alias = "normal")]
    Text,
    Json,
}

#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Output: text for people, json for programs
    #[arg(
        short = 'o',
        long = "output-format",
        value_name = "FORMAT",
        default_value = "text"
    )]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// Show what the server promises, too
    #[arg(short = 'v', long)]
    pub verbose: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct ConnectArgs {
    #[command(flatten)]
    pub options: ConnectOptions,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct DisconnectArgs {
    /// A device, as in rflash0 or /dev/rflash0; removes its whole controller
    #[arg(short = 'd', long, value_name = "DEVICE")]
    pub device: Option<String>,

    /// All connections to a subsystem
    #[arg(short = 'n', long, value_name = "NQN")]
    pub nqn: Option<String>,

    /// All connections
    #[arg(long)]
    pub all: bool,
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// A device, as in rflash0 or /dev/rflash0
    pub device: String,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct StatsArgs {
    /// A device, as in rflash0 or /dev/rflash0
    pub device: String,

    /// Each queue on its own as well
    #[arg(long)]
    pub queues: bool,

    /// Show what happens in each interval of so many seconds, until interrupted
    ///
    /// With -o json, one object a line.
    #[arg(
        short = 'W',
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1"
    )]
    pub watch: Option<f64>,

    /// Stop after so many intervals
    #[arg(long, value_name = "N", requires = "watch")]
    pub count: Option<u64>,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct DiscoverArgs {
    /// Transport: tcp
    #[arg(short = 't', long, value_name = "NAME", default_value = "tcp")]
    pub transport: String,

    /// Address of the target: IPv4 or IPv6 literal, or host name
    #[arg(short = 'a', long, value_name = "ADDR")]
    pub traddr: String,

    /// Port of the target, 1 to 65535
    #[arg(short = 's', long, value_name = "PORT", default_value = uapi::TCP_DISC_PORT)]
    pub trsvcid: String,

    /// NQN of this host [default: as for connect]
    #[arg(short = 'q', long, value_name = "NQN")]
    pub hostnqn: Option<String>,

    /// Id of this host, a UUID [default: as for connect]
    #[arg(short = 'I', long, value_name = "UUID")]
    pub hostid: Option<String>,

    /// Give up after so many seconds, 1 to 3600
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 5,
        allow_negative_numbers = true
    )]
    pub timeout: i64,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct ConnectAllArgs {
    /// A directory of *.toml files, or one file
    #[arg(short = 'C', long, value_name = "PATH", default_value = crate::config::DIRECTORY)]
    pub config: PathBuf,
}
