//! `lockkeeper doctor`: looks at a service and says what is wrong with it for locks.
//!
//! `examine` asks the servers, `words` is how those are asked who they are, and `judge` is the pure
//! half: from what was found to what is said.

mod examine;
mod judge;
mod words;

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
Each server of --connect is asked by itself, as it is asked with the other options: whether it answers \
and how fast, who it is, whether it belongs to the same service as the others. In the service an \
ephemeral znode is made for a moment, `/lockkeeper-doctor-...`, to see how long commits take. The \
configuration files in use are named, and a local engine that is used because no servers are named.

Exit codes: 0, nothing is wrong; 1, something is, as said; 75, no server could be asked.";

/// Check whether a service is fit for locks, and say what is wrong
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct DoctorOptions {
    /// A lock whose access control list to look at
    #[arg(value_parser = names::lock)]
    lock: Option<ZnodePath>,
}

/// What was found, as JSON. The names are stable.
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

/// Looks, and says what it found.
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
    let mut text = format!("configuration: {names}; lockkeeper settings shows what is in force\n");
    for server in &service.servers {
        text.push_str(&format!("{server}\n"));
    }
    text.push_str(&format!("{}\n", judge::promise(service.timing)));
    text.push_str(&format!("{}\n", judge::tokens(service)));
    for finding in findings {
        text.push_str(&format!("{finding}\n"));
    }
    if !findings.iter().any(|finding| finding.level == Level::Fault) {
        text.push_str("nothing is wrong\n");
    }
    text
}
