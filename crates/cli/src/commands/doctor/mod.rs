//! `lockkeeper doctor`: examines a service and reports problems for locks.
//!
//! `examine` asks the servers, `four_letter` asks a server for its version and role, and `judge` derives the findings without
//! I/O.

mod examine;
mod four_letter;
mod judge;

use std::path::PathBuf;

use clap::Args;
use lockkeeper::ZnodePath;
use serde::Serialize;

use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::names;
use crate::shared::output::show;
use crate::shared::view::printable;
use judge::{Finding, Level, Service};

const NOTES: &str = "\
Each server of --connect is examined separately, with the other options in effect: whether it answers \
and how fast, its version and role, and whether it belongs to the same service as the others. To measure \
commits, a temporary ephemeral znode `/lockkeeper-doctor-...` is created. The output names the \
configuration files in use, and a local engine that is used because no servers are configured.

Exit codes: 0, no problems; 1, problems were found; 75, no server answered.";

/// Check whether a service is fit for locks, and report problems
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct DoctorOptions {
    /// A lock whose access control list to check
    #[arg(value_parser = names::lock)]
    lock: Option<ZnodePath>,
}

/// The result as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ServiceReport<'a> {
    /// The configuration files in use.
    configuration: &'a [PathBuf],
    servers: Vec<ReportedServer<'a>>,
    lease_ms: u128,
    outage_ms: u128,
    last_zxid: String,
    epoch: u32,
    findings: &'a [Finding],
}

#[derive(Debug, Serialize)]
struct ReportedServer<'a> {
    server: &'a str,
    answers: bool,
    software: Option<&'a str>,
    role: Option<&'a str>,
    round_trip_us: Option<u128>,
}

/// Examines the service, and prints the findings.
pub(crate) async fn doctor(global: &Global, options: DoctorOptions) -> Result<u8, Failure> {
    let service = examine::service(global, options.lock.as_ref()).await?;
    let findings = judge::findings(&service);
    let files = global.settings.files.as_slice();
    show(global, &report(files, &service, &findings), || describe(files, &service, &findings))?;
    let is_wrong = findings.iter().any(|finding| finding.level == Level::Fault);
    Ok(if is_wrong { Exit::No.code() } else { Exit::Ok.code() })
}

fn report<'a>(
    files: &'a [PathBuf],
    service: &'a Service,
    findings: &'a [Finding],
) -> ServiceReport<'a> {
    let servers = service.servers.iter().map(|server| {
        let answers = server.answer.as_ref().ok();
        let who = answers.and_then(|answer| answer.who.as_ref());
        ReportedServer {
            server: &server.name,
            answers: answers.is_some(),
            software: who.map(|who| who.software.as_str()),
            role: who.map(|who| who.role.as_str()),
            round_trip_us: answers.map(|answer| answer.round_trip.as_micros()),
        }
    });

    ServiceReport {
        configuration: files,
        servers: servers.collect(),
        lease_ms: service.timing.lease().as_millis(),
        outage_ms: service.timing.outage().as_millis(),
        last_zxid: service.last_zxid.to_string(),
        epoch: service.last_zxid.epoch(),
        findings,
    }
}

fn describe(files: &[PathBuf], service: &Service, findings: &[Finding]) -> String {
    let names: Vec<_> = files.iter().map(|file| printable(&file.to_string_lossy())).collect();
    let names = if names.is_empty() { "no file".to_owned() } else { names.join(", ") };
    let mut text =
        format!("configuration: {names}; for the settings in force, see lockkeeper settings\n");
    for server in &service.servers {
        text.push_str(&format!("{server}\n"));
    }
    text.push_str(&format!("{}\n", judge::promise(service.timing)));
    text.push_str(&format!("{}\n", judge::tokens(service)));
    for finding in findings {
        text.push_str(&format!("{finding}\n"));
    }
    if !findings.iter().any(|finding| finding.level == Level::Fault) {
        text.push_str("no problems found\n");
    }
    text
}
