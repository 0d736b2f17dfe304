// SPDX-License-Identifier: GPL-2.0-only
//! Stopping, and being idle.

use std::time::{Duration, Instant};

use nvme_wire::command::Sqe;
use zerocopy::little_endian::U16;

use super::host::*;

#[test]
fn a_graceful_stop_lets_writes_finish() {
    let mut server = Server::start(settings());
    let mut session = Session::open(&server, PLAIN);
    let mut sqe = Sqe::write(1, 0, 8, 4096);
    sqe.cid = U16::new(3);
    let bytes = session.io.capsule(&sqe, &[]);
    session.io.send(&bytes);
    let Some(Got::R2t(r2t)) = session.io.receive() else {
        panic!("no R2T");
    };
    let plane = server.plane.take().unwrap();
    let stop = std::thread::spawn(move || plane.stop(true));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!stop.is_finished());
    session.io.answer(&r2t, &[1; 4096]);
    assert!(
        matches!(session.io.receive(), Some(Got::Done { cid: 3, status, .. }) if status.is_success())
    );
    assert!(session.io.receive().is_none());
    stop.join().unwrap();
    assert!(std::net::TcpStream::connect(server.address).is_err());
}

#[test]
fn a_stop_waits_for_no_peer() {
    let mut server = Server::start(rflashd::dataplane::Settings {
        grace: Duration::from_millis(200),
        ..settings()
    });
    let mut session = Session::open(&server, PLAIN);
    let bytes = session.io.capsule(&Sqe::write(1, 0, 8, 4096), &[]);
    session.io.send(&bytes);
    assert!(matches!(session.io.receive(), Some(Got::R2t(_))));
    let begun = Instant::now();
    server.plane.take().unwrap().stop(true);
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert!(session.io.receive().is_none());
}

#[test]
fn an_idle_core_sleeps() {
    let server = Server::start(settings());
    let mut session = Session::open(&server, PLAIN);
    assert!(session.io.run(Sqe::read(1, 0, 8, 4096), &[]).0.is_success());
    std::thread::sleep(Duration::from_millis(300));
    let core = server.registry.core(0).unwrap();
    let stats = &core.core;
    let before = stats.busy_ns.get() + stats.poll_ns.get();
    std::thread::sleep(Duration::from_secs(1));
    let used = stats.busy_ns.get() + stats.poll_ns.get() - before;
    println!("idle for 1 s: {used} ns in use");
    // Under 1 %, with room for a machine that does other things.
    assert!(used < 30_000_000, "{used} ns");
    assert!(session.io.run(Sqe::read(1, 0, 8, 4096), &[]).0.is_success());
}
