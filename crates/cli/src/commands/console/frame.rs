//! The frame of each page: the state of the connection, the menu, and what the page was made from.

use std::time::SystemTime;

use crate::commands::console::app::App;
use crate::commands::console::model::Model;
use crate::commands::console::text;
use crate::commands::console::words::{Age, clock};
use crate::shared::view;

/// The pages in the menu.
const PAGES: [(&str, &str); 7] = [
    ("/", "Overview"),
    ("/locks", "Locks"),
    ("/graph", "Graph"),
    ("/programs", "Programs"),
    ("/recipes", "Recipes"),
    ("/history", "History"),
    ("/servers", "Servers"),
];

/// What all pages have around their content.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) title: String,
    /// The page of the menu that this is, or belongs to.
    page: &'static str,
    /// Whether the page follows what happens. A form does not.
    pub(super) is_live: bool,
    pub(super) number: String,
    pub(super) now_ms: u128,
    pub(super) below: String,
    pub(super) servers: String,
    pub(super) allows_actions: bool,
    pub(super) away: Option<Away>,
    /// Whether some of what has changed is still to be read.
    pub(super) is_reading: bool,
    /// What a screen reader says when it changes.
    pub(super) summary: String,
}

/// An entry of the menu.
#[derive(Debug)]
pub(super) struct MenuEntry {
    pub(super) href: &'static str,
    pub(super) name: &'static str,
    pub(super) is_current: bool,
}

/// Since when no server can be reached.
#[derive(Debug)]
pub(super) struct Away {
    pub(super) since: Age,
    pub(super) at: String,
}

impl Frame {
    pub(super) fn new(
        app: &App,
        model: &Model,
        page: &'static str,
        title: impl Into<String>,
    ) -> Self {
        let link = *app.watched.link.borrow();
        let away = (!link.is_connected).then(|| {
            let at = u64::try_from(view::unix_ms(link.since)).unwrap_or(u64::MAX);
            Away { since: Age::of(link.since), at: clock(at) }
        });
        Self {
            title: title.into(),
            page,
            is_live: true,
            number: format!("{}.{}", model.number, link.number),
            now_ms: view::unix_ms(SystemTime::now()),
            below: text::path(app.path.as_str()),
            servers: text::visible(&app.servers, text::LONG),
            allows_actions: app.allows_actions,
            summary: summary(model, away.is_some()),
            is_reading: !app.watched.is_current(),
            away,
        }
    }

    /// The same for a page that stays as it is.
    pub(super) fn still(self) -> Self {
        Self { is_live: false, ..self }
    }

    pub(super) fn menu(&self) -> impl Iterator<Item = MenuEntry> {
        let entry = |(href, name)| MenuEntry { href, name, is_current: href == self.page };
        PAGES.into_iter().map(entry)
    }
}

fn summary(model: &Model, is_away: bool) -> String {
    if is_away {
        return "No server can be reached.".to_owned();
    }
    let deadlocks = match model.cycles.len() {
        0 => String::new(),
        number => format!("{}. ", text::count(number, "deadlock")),
    };
    let blockers = text::count(model.all_roots, "root blocker");
    format!("{deadlocks}{blockers}, {} waiting.", text::number(model.waiters))
}
