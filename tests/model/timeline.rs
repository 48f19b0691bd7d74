//! Steps as people read them.

use bytes::Bytes;
use lockkeeper_wire::{
    ConnectRequest, ConnectResponse, Decoder, Op, OpCode, Record as _, ReplyHeader, Request,
    RequestHeader, WatchEvent, xid,
};

use crate::histories::{HistoryInput, Seen};
use crate::machine::author;
use crate::program::Phase;

/// What was done, step by step.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    lines: Vec<String>,
    /// What each client asked for, by the numbers of its requests.
    asked: Vec<(usize, i32, OpCode)>,
}

impl Timeline {
    pub(crate) fn step(&mut self, what: &str) {
        let number = self.lines.iter().filter(|line| !line.starts_with(' ')).count() + 1;
        self.lines.push(format!("{number}. {what}"));
    }

    /// What a client did, and what came of it.
    pub(crate) fn client(&mut self, n: usize, what: &str, before: &Phase, seen: &Seen) {
        let mut line = format!("client {n}: {what}");
        if seen.phase != *before {
            line += &format!("; {}", phase(&seen.phase));
        }
        if let Some((share, token)) = seen.granted {
            line += &format!("; GRANTED {share}, token {}", token >> 32);
        }
        if let Some(belief) = seen.belief.as_ref().filter(|_| seen.granted.is_some()) {
            let until = belief.until.as_secs_f64();
            line += &format!(" by {}, until {until:.3} s", short(&belief.nodes[0]));
        }
        if seen.hung_up {
            line += "; hangs up";
        }
        if seen.dials {
            line += "; waits for a connection";
        }
        self.lines.push(format!("     {line} [{:.3} s]", seen.now.as_secs_f64()));
    }

    pub(crate) fn sends(&mut self, n: usize, frame: &Bytes) {
        let request = self.request(n, frame);
        self.lines.push(format!("       sends {request}"));
    }

    pub(crate) fn note(&mut self, what: &str) {
        self.lines.push(format!("     {what}"));
    }

    /// What a client's message says.
    pub(crate) fn request(&mut self, n: usize, frame: &Bytes) -> String {
        let mut input = Decoder::new(frame.clone());
        // A handshake begins with a protocol version of 0, which is no number of a request of ours.
        if let Ok(RequestHeader { xid, op }) = RequestHeader::decode(&mut input)
            && xid != 0
            && let Ok(request) = Request::decode(op, &mut input)
        {
            self.asked.push((n, xid, request.op()));
            return described(&request);
        }
        match ConnectRequest::decode(&mut Decoder::new(frame.clone())) {
            Ok(request) => format!("the handshake of session {:x}", request.session_id.0),
            Err(_) => format!("{frame:?}"),
        }
    }

    /// What the server's message says.
    pub(crate) fn reply(&self, n: usize, frame: &Bytes) -> String {
        let mut input = Decoder::new(frame.clone());
        let Ok(header) = ReplyHeader::decode(&mut input) else { return format!("{frame:?}") };
        if header.xid == xid::NOTIFICATION
            && let Ok(event) = WatchEvent::decode(&mut input)
        {
            return format!("the event {:?} of {}", event.kind, short(&event.path));
        }
        let asked = self.asked.iter().rev().find(|(of, xid, _)| (*of, *xid) == (n, header.xid));
        match (asked, ConnectResponse::decode(&mut Decoder::new(frame.clone()))) {
            (Some((_, _, op)), _) if header.error == 0 => {
                format!("the answer to {op:?}, at transaction {}", header.zxid.0)
            }
            (Some((_, _, op)), _) => format!("error {} to {op:?}", header.error),
            (None, Ok(response)) => format!("the welcome to session {:x}", response.session_id.0),
            (None, Err(_)) => format!("an answer at transaction {}", header.zxid.0),
        }
    }

    pub(crate) fn text(&self) -> String {
        self.lines.join("\n")
    }
}

/// What happens to a client, without the message that it may be.
pub(crate) fn input(input: HistoryInput) -> String {
    match input {
        HistoryInput::Connected => "gets a connection".to_owned(),
        HistoryInput::Frame(_) => "receives".to_owned(),
        HistoryInput::Ended(end) => format!("its connection is {end:?}").to_lowercase(),
        HistoryInput::Timer => "a timer is due".to_owned(),
        HistoryInput::Tick => "time passes".to_owned(),
        HistoryInput::Told(command) => format!("is told to {command:?}"),
    }
}

fn phase(phase: &Phase) -> String {
    match phase {
        Phase::GaveUp(why) => format!("GIVES UP: {why:?}"),
        other => format!("{other:?}"),
    }
}

fn described(request: &Request) -> String {
    let path = match request {
        Request::Create(r) | Request::Create2(r) | Request::CreateContainer(r) => &r.path,
        Request::Delete(r) => &r.path,
        Request::Exists(r)
        | Request::GetData(r)
        | Request::GetChildren(r)
        | Request::GetChildren2(r) => {
            let watched = if r.watch { ", watched" } else { "" };
            return format!("{:?} {}{watched}", request.op(), short(&r.path));
        }
        Request::SetData(r) => &r.path,
        Request::Sync(r) => &r.path,
        Request::Multi(ops) => {
            let ops: Vec<_> = ops.iter().map(described_op).collect();
            return format!("Multi {{ {} }}", ops.join(", "));
        }
        Request::RemoveWatches(r) => &r.path,
        _ => return format!("{:?}", request.op()),
    };
    format!("{:?} {}", request.op(), short(path))
}

fn described_op(op: &Op) -> String {
    match op {
        Op::Create(r) | Op::Create2(r) => format!("create {}", short(&r.path)),
        Op::Delete(r) => format!("delete {}", short(&r.path)),
        Op::Check(r) => format!("check {}", short(&r.path)),
        Op::SetData(r) => format!("set {}", short(&r.path)),
        other => format!("{other:?}"),
    }
}

/// A name without the digits that say nothing: of which client it is, and its number.
pub(crate) fn short(path: &str) -> String {
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    match (author(name), name.get(39..)) {
        (Some(client), Some(rest)) => {
            let attempt = name.get(27..39).map_or("", |digits| digits.trim_start_matches('0'));
            format!("{parent}/{client}.{attempt}{rest}")
        }
        _ => path.to_owned(),
    }
}
