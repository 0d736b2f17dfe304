// SPDX-License-Identifier: GPL-2.0-only
//! Everything around the data plane: start and stop, signals, reload, the log,
//! the admin socket, metrics, and who is promised what.

pub mod admin;
pub mod demo;
mod endpoint;
pub mod logger;
mod notify;
mod open;
mod prometheus;
mod report;
pub mod server;
mod signals;
pub mod tenants;
mod verbs;
mod windows;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::notify::Manager;
use self::server::{Server, Source};
use self::signals::{Signals, Wish};
use crate::config::Plan;
use crate::dataplane::now;

/// Serve until somebody says stop. The error is what kept it from starting.
pub fn run(source: Source, plan: Plan) -> Result<(), String> {
    let mut signals = Signals::new().map_err(|e| format!("signals: {e}"))?;
    let manager = Manager::of_environment();
    let metrics = plan.server.metrics;
    let admin_socket = plan.server.admin_socket.clone();
    let server = Server::start(source.clone(), plan)?;
    if let Some(address) = metrics {
        let server = Arc::clone(&server);
        let taken = endpoint::start(address, Arc::new(move || server.metrics()))
            .map_err(|e| format!("metrics can't be served at {address}: {e}"))?;
        log::info!("metrics at http://{taken}/metrics");
    }
    let socket = match admin_socket.as_os_str().is_empty() {
        true => None,
        false => match (admin(&server, &admin_socket), &source) {
            (Ok(socket), _) => Some(socket),
            (Err(e), Source::File(_)) => return Err(e),
            // Who tries a demo may be nobody in particular.
            (Err(e), Source::Demo(_)) => {
                log::warn!("no rflash tenant: {e}");
                None
            }
        },
    };
    let summary = server.summary();
    log::info!(version = env!("CARGO_PKG_VERSION"); "{summary}");
    if let Source::Demo(demo) = &source {
        println!("{}", demo.instructions().trim_end());
    }
    manager.ready(&summary);
    serve(&server, &mut signals, &manager);
    manager.stopping();
    log::info!("stopping: {} connections", server.connections());
    server.stop();
    drop(socket);
    log::info!("stopped");
    Ok(())
}

fn admin(server: &Arc<Server>, path: &Path) -> Result<admin::Socket, String> {
    let server = Arc::clone(server);
    let answers: admin::Answers =
        Arc::new(move |verb, request| verbs::answer(&server, verb, request));
    admin::start(path, answers).map_err(|e| format!("admin socket {}: {e}", path.display()))
}

/// The service's own loop: a look every [`windows::TICK`], and signals.
fn serve(server: &Server, signals: &mut Signals, manager: &Manager) {
    let tick = Duration::from_nanos(windows::TICK);
    let mut next = Instant::now() + tick;
    let mut count = 0;
    loop {
        match signals.wait(next) {
            Ok(Some(Wish::Stop)) => return,
            Ok(Some(Wish::Reload)) => {
                manager.reloading(now());
                match server.reload() {
                    Ok(changes) => log::info!("reloaded: {} changes", changes.len()),
                    Err(e) => e.lines().for_each(|l| log::error!("not reloaded: {l}")),
                }
                manager.ready(&server.summary());
            }
            Ok(None) => {}
            Err(e) => {
                log::error!("signals: {e}");
                return;
            }
        }
        if Instant::now() >= next {
            count += 1;
            server.look(count);
            // A look that came late is not made up for.
            next = (next + tick).max(Instant::now());
        }
    }
}
