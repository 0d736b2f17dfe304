// SPDX-License-Identifier: GPL-2.0-only
//! `rflash tenant`: what a server on this host promises, over its admin socket.

mod client;
mod show;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use self::client::Server;
use super::print;
use crate::error::Error;
use crate::table;

/// Where rflashd listens unless its configuration says otherwise.
const SOCKET: &str = "/run/rflash/rflashd.sock";

#[derive(Debug, Args)]
pub struct TenantArgs {
    #[command(subcommand)]
    pub action: Action,

    /// The server's admin socket
    #[arg(long, global = true, value_name = "PATH", default_value = SOCKET)]
    pub socket: std::path::PathBuf,

    #[command(flatten)]
    pub output: GlobalOutput,
}

/// The usual option, wherever it stands.
#[derive(Debug, Args)]
pub struct GlobalOutput {
    /// Output: text for people, json for programs
    #[arg(
        short = 'o',
        long = "output-format",
        global = true,
        value_name = "FORMAT",
        default_value = "text"
    )]
    pub format: crate::cli::Format,
}

#[derive(Debug, Subcommand)]
pub enum Action {
    /// List all tenants: who they are, what they were promised, what they get
    List,
    /// Promise something to a subsystem's hosts, or to one of them
    Add(AddArgs),
    /// Promise something else to a tenant, without dropping a request
    Set(SetArgs),
    /// Take a promise back; the tenant's hosts become guests
    Remove(NameArgs),
    /// Explain why a tenant is as fast as it is
    ///
    /// What it has of the device and why, and where the time of its requests
    /// was spent in the last ten seconds: waiting for tokens, at the device, or
    /// in the server's own queue.
    Explain(NameArgs),
}

#[derive(Debug, Args)]
pub struct NameArgs {
    /// Name of the tenant
    pub name: String,
}

#[derive(Debug, Args)]
pub struct AddArgs {
    /// Name of the new tenant
    pub name: String,

    /// The subsystem
    #[arg(short = 'n', long, value_name = "NQN")]
    pub nqn: String,

    /// Only this host [default: whoever connects]
    #[arg(short = 'q', long, value_name = "NQN")]
    pub hostnqn: Option<String>,

    #[command(flatten)]
    pub promise: PromiseArgs,
}

#[derive(Debug, Args)]
pub struct SetArgs {
    /// Name of the tenant
    pub name: String,

    #[command(flatten)]
    pub promise: PromiseArgs,
}

/// The classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Class {
    /// Latency-critical: has an SLO
    Lc,
    /// Best-effort: has a weight
    Be,
}

#[derive(Debug, Args)]
pub struct PromiseArgs {
    /// lc (latency-critical) or be (best-effort)
    #[arg(long, value_name = "CLASS")]
    pub class: Option<Class>,

    /// Latency of reads that 95 % do not exceed, in microseconds
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub slo_p95: Option<u32>,

    /// Requests per second
    #[arg(long, value_name = "IOPS", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub slo_iops: Option<u32>,

    /// Reads among them, in percent
    #[arg(long, value_name = "PCT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub slo_read_pct: Option<u32>,

    /// Bytes of a request, a multiple of 512
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(512..=1_048_576))]
    pub slo_block: Option<u32>,

    /// Share among best-effort tenants
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub weight: Option<u32>,
}

impl PromiseArgs {
    fn put(&self, request: &mut Map<String, Value>) {
        let class = self.class.map(|c| match c {
            Class::Lc => "lc",
            Class::Be => "be",
        });
        request.insert("class".into(), json!(class));
        for (key, value) in [
            ("slo_p95_us", self.slo_p95),
            ("slo_iops", self.slo_iops),
            ("slo_read_pct", self.slo_read_pct),
            ("slo_block_bytes", self.slo_block),
            ("weight", self.weight),
        ] {
            request.insert(key.into(), json!(value));
        }
    }

    fn is_empty(&self) -> bool {
        let numbers = [
            self.slo_p95,
            self.slo_iops,
            self.slo_read_pct,
            self.slo_block,
            self.weight,
        ];
        self.class.is_none() && numbers.iter().all(Option::is_none)
    }
}

/// What is asked of the server.
fn request(action: &Action) -> Result<Value, Error> {
    let mut request = Map::new();
    let verb = match action {
        Action::List => "tenants",
        Action::Add(args) => {
            request.insert("name".into(), args.name.as_str().into());
            request.insert("nqn".into(), args.nqn.as_str().into());
            request.insert("host".into(), json!(args.hostnqn));
            args.promise.put(&mut request);
            "tenant-add"
        }
        Action::Set(args) => {
            if args.promise.is_empty() {
                return Err(Error::Usage(
                    "nothing to set: give --class, --slo-* or --weight; see `rflash tenant --help`"
                        .into(),
                ));
            }
            request.insert("name".into(), args.name.as_str().into());
            args.promise.put(&mut request);
            "tenant-set"
        }
        Action::Remove(args) => {
            request.insert("name".into(), args.name.as_str().into());
            "tenant-remove"
        }
        Action::Explain(args) => {
            request.insert("name".into(), args.name.as_str().into());
            "tenant-explain"
        }
    };
    request.insert("verb".into(), verb.into());
    Ok(Value::Object(request))
}

/// Run what the command line says.
pub fn run(args: &TenantArgs) -> Result<(), Error> {
    let request = request(&args.action)?;
    let answer = Server::at(&args.socket).ask(&request)?;
    let json = args.output.format.is_json();
    let key = match args.action {
        Action::List => "tenants",
        Action::Remove(_) => return Ok(()),
        _ => "tenant",
    };
    let value = answer.get(key).cloned().unwrap_or(Value::Null);
    if json {
        return print(&table::pretty(&value));
    }
    print(&match args.action {
        Action::List => show::list(&value),
        Action::Explain(_) => show::explanation(&value),
        _ => show::list(&Value::Array(vec![value])),
    })
}

#[cfg(test)]
mod tests;
