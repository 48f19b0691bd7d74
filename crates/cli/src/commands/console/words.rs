//! Contenders, times and locks as the pages write them, each as a small template.

use std::time::{Duration, SystemTime};

use askama::Template;
use lockkeeper::graph::ContenderIndex;
use lockkeeper::inspect::{Entry, LockQueue};
use lockkeeper::{SessionId, ZnodePath};

use crate::commands::console::model::Model;
use crate::commands::console::text;
use crate::shared::view::{self, HeldSince};

/// How long something has lasted; the page counts on by itself.
#[derive(Clone, Debug, Template)]
#[template(source = "<time data-since=\"{{ since_unix_ms }}\">{{ text }}</time>", ext = "html")]
pub(super) struct Age {
    since_unix_ms: u128,
    text: String,
}

impl Age {
    pub(super) fn of(since: SystemTime) -> Self {
        let age = since.elapsed().unwrap_or_default();
        // Fractions of a second would run through the page as a flicker.
        let text = view::duration(Duration::from_secs(age.as_secs())).replace("0ms", "0s");
        Self { since_unix_ms: view::unix_ms(since), text }
    }
}

/// A lock, as a link to its page.
#[derive(Clone, Debug, Template)]
#[template(
    source = "{% if let Some(query) = query %}<a class=\"path\" href=\"/lock?path={{ query }}\">\
              <bdi>{{ text }}</bdi></a>{% else %}<bdi class=\"path\">{{ text }}</bdi>{% endif %}",
    ext = "html"
)]
pub(super) struct LockLink {
    text: String,
    query: Option<String>,
}

impl LockLink {
    pub(super) fn to(path: &str) -> Self {
        let query = (path.len() <= text::LONGEST_LINK).then(|| text::query(path));
        Self { text: text::path(path), query }
    }
}

/// A contender, in a few words, with a link to what else its session does.
#[derive(Clone, Debug, Template)]
#[template(
    source = "<span class=\"who\"><bdi class=\"name\">{{ name }}</bdi>\
              {% if !place.is_empty() %} <span class=\"place\"><bdi>{{ place }}</bdi></span>{% endif %}\
              {% if !why.is_empty() %} <span class=\"why\"><bdi>{{ why }}</bdi></span>{% endif %}\
              {% if !asked.is_empty() %} <span class=\"asked\"><bdi>{{ asked }}</bdi></span>{% endif %}</span>",
    ext = "html"
)]
pub(super) struct ContenderName {
    /// What it calls itself.
    pub(super) name: String,
    /// Where it runs.
    pub(super) place: String,
    why: String,
    /// The request to release the lock, with the person who asks and the reason.
    asked: String,
}

impl ContenderName {
    pub(super) fn of(entry: &Entry) -> Self {
        let asked = match entry.is_revoked() {
            true => {
                format!("asked to release it{}", view::by_whom(entry.revoke_request().as_ref()))
            }
            false => String::new(),
        };
        let asked = text::visible(&asked, 2 * text::LONG);
        let Some(owner) = &entry.owner else {
            let name = match entry.session {
                SessionId::NONE => "not ephemeral: no session's end frees it".to_owned(),
                session => format!("session {session}"),
            };
            let data = String::from_utf8_lossy(&entry.data);
            let data = if entry.is_revoked() { "" } else { data.trim() };
            return match (entry.is_readable, data.is_empty()) {
                (false, _) => Self::named("cannot be read".to_owned()),
                (true, true) => Self { asked, ..Self::named(name) },
                (true, false) => {
                    Self { place: name, asked, ..Self::named(text::visible(data, 60)) }
                }
            };
        };
        let user = owner.user.as_ref().map(|user| format!("{user} on ")).unwrap_or_default();
        let place = format!("{user}{} · pid {}", owner.host, owner.pid);
        Self {
            name: text::visible(owner.label.as_ref().unwrap_or(&owner.program), 60),
            place: text::visible(&place, text::LONG),
            why: text::visible(owner.why.as_deref().unwrap_or_default(), text::LONG),
            asked,
        }
    }

    fn named(name: String) -> Self {
        Self { name, place: String::new(), why: String::new(), asked: String::new() }
    }
}

/// Since when a contender holds or waits.
#[derive(Clone, Debug, Template)]
#[template(
    source = "<span class=\"since\">{{ age|safe }}{% if !note.is_empty() %} \
              <small>{{ note }}</small>{% endif %}</span>",
    ext = "html"
)]
pub(super) struct Since {
    age: Age,
    /// What is known of the time, if it is not the plain one.
    note: &'static str,
}

impl Since {
    pub(super) fn of(model: &Model, at: ContenderIndex) -> Self {
        let entry = model.contender(at);
        let (since, note) = match view::held_since(entry, &model.observed) {
            Some(HeldSince::Noted(since)) => (since, ""),
            Some(HeldSince::Observed(since)) => (since, "seen"),
            None if entry.holds => (entry.since, "in line"),
            None => (entry.since, ""),
        };
        Self { age: Age::of(since), note }
    }
}

/// What a contender waits for, by positions.
pub(super) fn waits_for(queue: &LockQueue, index: usize) -> String {
    view::waits_for(queue, index).replace('-', "–")
}

/// What is wrong with a path that was asked for.
pub(super) fn read_path(path: &str) -> Option<ZnodePath> {
    ZnodePath::new(path).ok()
}

/// A time of day by the local clock of the console's machine, with the date unless it is today's.
pub(super) fn clock(unix_ms: u64) -> String {
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms));
    let Some(at) = at else { return String::new() };
    let day = view::local(at, "%F");
    match day == view::local(SystemTime::now(), "%F") {
        true => view::local(at, "%T"),
        false => format!("{day} {}", view::local(at, "%T")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_znode_is_neither_markup_nor_an_attribute() {
        for hostile in
            ["<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "'\u{202e}&"]
        {
            let link = LockLink::to(&format!("/{hostile}")).to_string();
            let who = ContenderName {
                name: text::visible(hostile, 60),
                place: text::visible(hostile, 60),
                why: text::visible(hostile, 60),
                asked: text::visible(hostile, 60),
            };
            let both = link + &who.to_string();
            assert_eq!(both.matches("<bdi").count(), 5, "{both}");
            for acting in ["<script", "<img", "onerror=alert(1)>", "'", "\u{202e}"] {
                assert!(!both.contains(acting), "{acting} in {both}");
            }
        }
        assert!(!LockLink::to(&format!("/{}", "x".repeat(5_000))).to_string().contains("href"));
    }
}
