// SPDX-License-Identifier: GPL-2.0-only
//! The server as it is run, end to end: started, connected to, changed while it
//! serves, stopped. It needs no privileges; its ports are free ones.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nvme_host::{Admin, Connection, Deadline, HostError, HostIdentity, Options, Request, discover};
use nvme_wire::command::Sqe;
use nvme_wire::fabrics::{ConnectCmd, ConnectData};
use serde_json::{Value, json};
use zerocopy::IntoBytes;

const PATIENCE: Duration = Duration::from_secs(60);

fn deadline() -> Deadline {
    Deadline::after(PATIENCE)
}

fn host() -> HostIdentity {
    HostIdentity {
        nqn: "nqn.2024-01.io.example:host1".into(),
        id: [7; 16],
    }
}

/// A port nobody has now.
fn free() -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap()
}

/// A directory of the test's own.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("rflashd-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn rflashd(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rflashd"));
    command.args(args).stdin(Stdio::null());
    command
}

/// A running server; killed when the test ends without stopping it.
struct Daemon {
    child: Child,
    manager: UnixDatagram,
    socket: PathBuf,
    log: PathBuf,
}

impl Daemon {
    /// Start it and wait until it says that it is ready.
    fn start(place: &Place, args: &[&str]) -> Daemon {
        let manager = UnixDatagram::bind(place.path("notify")).unwrap();
        manager.set_read_timeout(Some(PATIENCE)).unwrap();
        let log = place.path("log");
        let child = rflashd(args)
            .env("NOTIFY_SOCKET", place.path("notify"))
            .stdout(std::fs::File::create(place.path("out")).unwrap())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let daemon = Daemon {
            child,
            manager,
            socket: place.path("admin"),
            log,
        };
        let said = daemon.said();
        assert!(said.starts_with("READY=1\n"), "{said}\n{}", daemon.log());
        daemon
    }

    /// The next word to the service manager.
    fn said(&self) -> String {
        let mut buffer = [0; 512];
        let n = self.manager.recv(&mut buffer);
        let n = n.unwrap_or_else(|e| panic!("{e}: {}", self.log()));
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn ask(&self, request: Value) -> Value {
        let mut socket = UnixStream::connect(&self.socket).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(socket).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(done.unwrap().success());
    }

    /// SIGTERM, and all that belongs to a graceful end.
    fn stop(mut self) {
        self.signal("TERM");
        assert!(self.said().starts_with("STOPPING=1\n"));
        let until = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{status}: {}", self.log());
        assert!(!self.socket.exists());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A host with an admin queue and one I/O queue.
struct Host {
    _admin: Admin,
    io: Connection,
}

impl Host {
    fn connect(address: SocketAddr, nqn: &str) -> Result<Host, HostError> {
        let (options, host) = (Options::default(), host());
        let kato = Duration::from_secs(60);
        let mut admin = Admin::connect(address, options, &host, nqn, kato, &deadline())?;
        assert!(admin.set_queue_count(1, &deadline())? >= 1);
        let mut io = Connection::open(address, options, &deadline())?;
        let data = ConnectData::new(host.id, admin.cntlid, nqn, &host.nqn)?;
        let sqe = ConnectCmd::new(1, 32, 0, 0).sqe();
        io.run(
            Request::in_capsule("Connect", sqe, data.as_bytes()),
            &deadline(),
        )?;
        Ok(Host { _admin: admin, io })
    }

    fn write(&mut self, lba: u64, data: &[u8]) -> Result<(), HostError> {
        let len = data.len() as u32;
        let sqe = Sqe::write(1, lba, len / 4096, len).in_capsule();
        self.io
            .run(Request::in_capsule("Write", sqe, data), &deadline())?;
        Ok(())
    }

    fn read(&mut self, lba: u64, blocks: u32) -> Result<Vec<u8>, HostError> {
        let mut data = vec![0; blocks as usize * 4096];
        let sqe = Sqe::read(1, lba, blocks, blocks * 4096);
        let request = Request::reading("Read", sqe, &mut data);
        self.io.run(request, &deadline())?;
        Ok(data)
    }

    /// Writes something and finds it again.
    fn works(&mut self, lba: u64) {
        let data: Vec<u8> = (0..8192_u32).map(|n| (n / 16 + lba as u32) as u8).collect();
        self.write(lba, &data).unwrap();
        assert_eq!(self.read(lba, 2).unwrap(), data);
        for n in 0..20 {
            self.read(lba + n % 4, 1).unwrap();
        }
    }
}

fn metrics(address: SocketAddr) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    text
}

/// What `ask` returns once it is as `wanted`; what it was last, when it never is.
/// A request is counted after its reply has left, quantiles are made now and then.
fn in_time(mut ask: impl FnMut() -> Value, wanted: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let got = ask();
        if wanted(&got) || Instant::now() > until {
            return got;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_demo() {
    let place = Place::new("demo");
    let (io, discovery, scrape) = (free(), free(), free());
    let socket = place.path("admin");
    let daemon = Daemon::start(
        &place,
        &[
            "--demo",
            "--size=64 MiB",
            "--threads=1",
            &format!("--listen={io}"),
            &format!("--discovery={discovery}"),
            &format!("--metrics={scrape}"),
            &format!("--admin-socket={}", socket.display()),
        ],
    );
    let out = std::fs::read_to_string(place.path("out")).unwrap();
    assert!(out.contains("rflash connect -a 127.0.0.1"), "{out}");

    // What there is.
    let (options, kato) = (Options::default(), Duration::from_secs(60));
    let nqn = nvme_wire::nqn::DISCOVERY;
    drop(Admin::connect(discovery, options, &host(), nqn, kato, &deadline()).unwrap());
    let log = discover(discovery, &host(), PATIENCE).unwrap();
    let found = format!("{log:?}");
    for name in ["gold", "silver", "bronze"] {
        assert!(found.contains(&format!("demo:{name}")), "{found}");
    }

    // Two tenants write to the same blocks of theirs, and find their own.
    let name = |n: &str| format!("nqn.2026-11.org.rflash:demo:{n}");
    let mut gold = Host::connect(io, &name("gold")).unwrap();
    let mut bronze = Host::connect(io, &name("bronze")).unwrap();
    gold.works(3);
    bronze.works(4);
    gold.works(3);

    // What they are, live.
    let gold_now = in_time(
        || {
            let all = daemon.ask(json!({"verb": "tenants"}));
            assert_eq!(all["ok"], true, "{all}");
            let tenants = all["tenants"].as_array().unwrap();
            tenants
                .iter()
                .find(|t| t["name"] == "gold")
                .unwrap()
                .clone()
        },
        |gold| gold["reads"] == 42,
    );
    assert_eq!(gold_now["class"], "lc");
    assert_eq!(gold_now["reads"], 42, "{gold_now}");
    assert_eq!(gold_now["writes"], 2);
    assert!(
        gold_now["tokens"]["spent"].as_i64().unwrap() > 0,
        "{gold_now}"
    );
    let refused = daemon.ask(json!({"verb": "tenant-set", "name": "gold", "slo_iops": 90_000_000}));
    assert_eq!(refused["ok"], false);
    assert!(
        refused["error"].as_str().unwrap().contains("gold"),
        "{refused}"
    );
    let set = daemon.ask(
        json!({"verb": "tenant-set", "name": "bronze", "slo_p95_us": 2000,
                                "slo_iops": 500, "slo_read_pct": 50}),
    );
    assert_eq!(set["tenant"]["class"], "lc", "{set}");
    bronze.works(4);
    let verdict = |e: &Value| e["tenant"]["verdict"].as_str().unwrap().contains("p99");
    let explained = in_time(
        || {
            bronze.works(4);
            daemon.ask(json!({"verb": "tenant-explain", "name": "bronze"}))
        },
        verdict,
    );
    assert!(verdict(&explained), "{explained}");
    assert!(
        explained["tenant"]["granted"]
            .as_str()
            .unwrap()
            .contains("bronze")
    );

    // What is measured.
    let text = metrics(scrape);
    let want = format!(
        "rflashd_tenant_requests_total{{tenant=\"gold\",subsystem=\"{}\",device=\"demo\",op=\"read\"}} 42",
        name("gold")
    );
    assert!(text.lines().any(|l| l == want), "{want}\n{text}");
    assert!(text.contains("\nrflashd_connections 4\n"), "{text}");

    // A host goes, another name is nobody's.
    drop(bronze);
    let error = Host::connect(io, &name("tin")).err().unwrap();
    assert!(matches!(error, HostError::Status { .. }), "{error}");
    gold.works(9);
    daemon.stop();
}

fn file(place: &Place, io: SocketAddr, tenants: &[(&str, u32, &str)]) -> PathBuf {
    let mut text = format!(
        "[server]\nthreads = 1\nadmin-socket = \"{}\"\n[discovery]\nlisten = []\n\
         [[device]]\nname = \"r\"\nram = \"64 MiB\"\ncost-model = \"million\"\n",
        place.path("admin").display()
    );
    for (name, at, more) in tenants {
        text.push_str(&format!(
            "[[tenant]]\nname = \"{name}\"\nnqn = \"nqn.2024-01.io.example:{name}\"\ndevice = \"r\"\n\
             offset = \"{at} MiB\"\nsize = \"8 MiB\"\naddress = \"{}\"\nport = {}\n{more}",
            io.ip(),
            io.port()
        ));
    }
    let path = place.path("rflashd.toml");
    std::fs::write(&path, text).unwrap();
    path
}

const NQN: &str = "nqn.2024-01.io.example";

#[test]
fn a_reload_drops_nobody() {
    let place = Place::new("reload");
    let (io, more) = (free(), free());
    let config = file(&place, io, &[("a", 0, ""), ("b", 8, "")]);
    let daemon = Daemon::start(&place, &["--config", config.to_str().unwrap()]);
    let mut a = Host::connect(io, &format!("{NQN}:a")).unwrap();
    let mut b = Host::connect(io, &format!("{NQN}:b")).unwrap();
    a.works(1);
    b.works(1);

    // One goes, one comes, one is promised something.
    let slo = "class = \"lc\"\nslo-p95 = 900\nslo-iops = 1000\nslo-read-pct = 50\n";
    file(&place, io, &[("a", 0, slo), ("c", 16, "weight = 7\n")]);
    daemon.signal("HUP");
    assert!(daemon.said().starts_with("RELOADING=1\n"));
    assert!(daemon.said().starts_with("READY=1\n"));
    a.works(1);
    Host::connect(io, &format!("{NQN}:c")).unwrap().works(1);
    assert!(Host::connect(io, &format!("{NQN}:b")).is_err());
    assert!(b.read(1, 1).is_err());
    let all = daemon.ask(json!({"verb": "tenants"}));
    let names: Vec<_> = all["tenants"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| &t["name"])
        .collect();
    assert_eq!(names, ["a", "c"], "{all}");
    assert_eq!(all["tenants"][0]["class"], "lc");

    // A mistake changes nothing, and is told.
    let mut text = std::fs::read_to_string(&config).unwrap();
    text.push_str("wieght = 3\n");
    std::fs::write(&config, &text).unwrap();
    let refused = daemon.ask(json!({"verb": "reload"}));
    let error = refused["error"].as_str().unwrap();
    let line = text.lines().count();
    assert!(
        error.starts_with(&format!(
            "{}:{line}: wieght: no such key in [[tenant]], did you mean weight?",
            config.display()
        )),
        "{error}"
    );
    // So does a promise that does not fit.
    let much = "class = \"lc\"\nslo-p95 = 900\nslo-iops = 90000000\n";
    file(&place, io, &[("a", 0, much), ("c", 16, "weight = 7\n")]);
    let refused = daemon.ask(json!({"verb": "reload"}));
    assert!(
        refused["error"].as_str().unwrap().contains('a'),
        "{refused}"
    );
    a.works(1);

    // Another port, by the command that systemd runs.
    let moved = std::fs::read_to_string(file(&place, more, &[("a", 0, slo)])).unwrap();
    std::fs::write(&config, moved).unwrap();
    let out = rflashd(&["--reload", "--config", config.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    Host::connect(more, &format!("{NQN}:a")).unwrap().works(1);
    a.works(1);
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect(io).is_ok() {
        assert!(Instant::now() < until, "it still listens at {io}");
        std::thread::sleep(Duration::from_millis(10));
    }
    daemon.stop();
}

fn fails(args: &[&str]) -> String {
    let out = rflashd(args).output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{args:?}");
    String::from_utf8(out.stderr).unwrap()
}

#[test]
fn checks_and_what_can_not_start() {
    let place = Place::new("check");
    let io = free();
    let config = file(&place, io, &[("a", 0, ""), ("b", 4, "colour = 1\n")]);
    let path = config.to_str().unwrap();
    let text = fails(&["--check", "--config", path]);
    assert!(text.starts_with(&format!("rflashd: {path}:")), "{text}");
    assert!(text.contains("colour: no such key in [[tenant]]"), "{text}");
    file(&place, io, &[("a", 0, "")]);
    let out = rflashd(&["--check", "--config", path]).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&out.stdout),
        format!("{path}: right, 1 tenants\n")
    );
    let out = rflashd(&["--print-config", "--config", path])
        .output()
        .unwrap();
    let printed = String::from_utf8(out.stdout).unwrap();
    assert!(printed.contains("[[tenant]]\nname = \"a\""), "{printed}");
    assert!(printed.contains("\nspin-us = 50\n"), "{printed}");
    // Somebody has the port.
    let taken = TcpListener::bind(io).unwrap();
    let text = fails(&["--config", path]);
    assert!(text.contains(&format!("can't listen at {io}")), "{text}");
    let address = format!("--listen={io}");
    let text = fails(&["--demo", "--size=16 MiB", &address, "--admin-socket", ""]);
    assert!(text.contains(&format!("can't listen at {io}")), "{text}");
    drop(taken);
    let none = fails(&["--config", "/nowhere/rflashd.toml"]);
    assert_eq!(
        none,
        "rflashd: /nowhere/rflashd.toml: no such file or directory\n"
    );
    let none = fails(&["--reload", "--config", path]);
    assert!(none.contains("admin"), "{none}");
    assert!(!Path::new(&place.path("admin")).exists());
}
