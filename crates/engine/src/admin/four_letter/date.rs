//! Dates as ZooKeeper prints them: `Fri Nov 20 04:40:23 UTC 2026`.

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [(&str, i64); 12] = [
    ("Jan", 31),
    ("Feb", 28),
    ("Mar", 31),
    ("Apr", 30),
    ("May", 31),
    ("Jun", 30),
    ("Jul", 31),
    ("Aug", 31),
    ("Sep", 30),
    ("Oct", 31),
    ("Nov", 30),
    ("Dec", 31),
];

/// From milliseconds since 1970, in UTC. Times before that are shown as its beginning.
pub(super) fn format(unix_ms: i64) -> String {
    let seconds = unix_ms.max(0) / 1_000;
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let weekday = DAYS[(days % 7) as usize];
    let (year, day_of_year) = year_of(days);
    let (month, day) = month_of(year, day_of_year);
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    format!("{weekday} {month} {day:02} {hour:02}:{minute:02}:{second:02} UTC {year}")
}

fn year_of(mut days: i64) -> (i64, i64) {
    // The calendar repeats after 400 years.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    while days >= length(year) {
        days -= length(year);
        year += 1;
    }
    (year, days)
}

fn month_of(year: i64, mut day: i64) -> (&'static str, i64) {
    for (name, days) in MONTHS {
        let days = days + i64::from(name == "Feb" && is_leap(year));
        if day < days {
            return (name, day + 1);
        }
        day -= days;
    }
    unreachable!("a year has no more days than its months")
}

fn length(year: i64) -> i64 {
    365 + i64::from(is_leap(year))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        for (seconds, expected) in [
            (0, "Thu Jan 01 00:00:00 UTC 1970"),
            (951_782_400, "Tue Feb 29 00:00:00 UTC 2000"),
            (1_709_251_199, "Thu Feb 29 23:59:59 UTC 2024"),
            (1_795_149_623, "Fri Nov 20 04:40:23 UTC 2026"),
            (4_107_542_400, "Mon Mar 01 00:00:00 UTC 2100"),
            (13_574_563_200, "Tue Feb 29 00:00:00 UTC 2400"),
        ] {
            assert_eq!(format(seconds * 1_000), expected);
        }
    }
}
