// SPDX-License-Identifier: GPL-2.0-only
//! The flash server: reads the command line and the configuration, serves,
//! prints what went wrong. What it does is in the library.

use std::process::ExitCode;

use clap::Parser;
use rflashd::cli::Cli;
use rflashd::service::server::{Source, check};
use rflashd::service::{admin, logger, run};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match go(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            for line in text.lines() {
                eprintln!("rflashd: {line}");
            }
            ExitCode::from(1)
        }
    }
}

fn go(cli: &Cli) -> Result<(), String> {
    let source = cli.source()?;
    let (config, plan) = source.plan()?;
    if cli.print_config {
        print!("{}", config.to_toml());
        return Ok(());
    }
    if cli.reload {
        return reload(&plan.server.admin_socket);
    }
    if cli.check {
        check(&plan)?;
        let file = cli.config.display();
        println!("{file}: right, {} tenants", plan.promises.len());
        return Ok(());
    }
    logger::start(plan.server.log_level, plan.server.log_format);
    if let Source::File(file) = &source {
        log::debug!("configuration from {}", file.display());
    }
    run(source, plan)
}

fn reload(socket: &std::path::Path) -> Result<(), String> {
    let answer = admin::ask(socket, &serde_json::json!({"verb": "reload"}))?;
    let changes = answer.get("changes").and_then(|c| c.as_array());
    for change in changes.into_iter().flatten() {
        println!("{}", change.as_str().unwrap_or_default());
    }
    Ok(())
}
