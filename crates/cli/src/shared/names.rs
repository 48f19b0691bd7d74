//! Lock names and durations, as users write them.

use std::time::Duration;

use lockkeeper::{BuildError, OwnerInfo, ZnodePath};

/// Reads the name of a lock: `demo/hello` is `/demo/hello`.
pub(crate) fn lock(text: &str) -> Result<ZnodePath, BuildError> {
    let path = folder(text)?;
    match path.as_str() {
        "/" => Err(BuildError::Root),
        own if own == "/zookeeper" || own.starts_with("/zookeeper/") => {
            Err(BuildError::Reserved(path))
        }
        _ => Ok(path),
    }
}

/// Reads a path that may be `/`.
pub(crate) fn folder(text: &str) -> Result<ZnodePath, BuildError> {
    let relative = !text.is_empty() && !text.starts_with('/');
    let path = if relative { ZnodePath::new(&format!("/{text}")) } else { ZnodePath::new(text) };
    path.map_err(BuildError::Path)
}

/// Reads `10s`, `500ms` or `1m 30s`. A number without a unit means seconds, as in flock(1).
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().map(Duration::try_from_secs_f64);
    let parsed = seconds.and_then(Result::ok).or_else(|| humantime::parse_duration(text).ok());
    // More than a year is a mistake, and sums near the maximum would overflow.
    match parsed {
        Some(duration) if duration <= YEAR => Ok(duration),
        Some(_) => Err("it is longer than a year".to_owned()),
        None if text.starts_with('-') => Err("it must not be negative".to_owned()),
        None => Err("write it like 10s, 500ms, 1m30s or 2.5 (seconds)".to_owned()),
    }
}

const YEAR: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Reads a duration that is not zero.
pub(crate) fn nonzero_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be longer than zero".to_owned()),
        some => Ok(some),
    }
}

/// Reads a text for other users to read.
pub(crate) fn remark(text: &str) -> Result<String, String> {
    const LONGEST: usize = OwnerInfo::LONGEST_TEXT;
    match text.len() {
        0 => Err("it is empty".to_owned()),
        1..=LONGEST => Ok(text.to_owned()),
        long => Err(format!("it has {long} bytes; the maximum is {LONGEST}")),
    }
}

/// Reads a number of at least 1.
pub(crate) fn nonzero(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be greater than zero".to_owned()),
        Ok(some) => Ok(some),
        Err(_) => Err("write a whole number, without a unit".to_owned()),
    }
}

/// The minimum for a limit in bytes: a short request must fit.
const MIN_BYTES: usize = 1024;

/// Reads a limit in bytes.
pub(crate) fn byte_limit(text: &str) -> Result<usize, String> {
    match nonzero(text)? {
        few if few < MIN_BYTES => Err(format!("it must be at least {MIN_BYTES} bytes")),
        enough => Ok(enough),
    }
}

/// The shortest session timeout that allows for network delays at the start and at each renewal.
const MIN_SESSION: Duration = Duration::from_millis(100);

/// Reads a session timeout.
pub(crate) fn session_timeout(text: &str) -> Result<Duration, String> {
    match nonzero_duration(text)? {
        short if short < MIN_SESSION => Err(format!(
            "it must be at least {MIN_SESSION:?}; servers may grant a longer timeout than \
             requested"
        )),
        enough => Ok(enough),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: `serve --max-sessions 0`, or a maximum frame length of one byte, was accepted.
    #[test]
    fn limits_leave_something() {
        assert_eq!((nonzero("1"), byte_limit("1024")), (Ok(1), Ok(1024)));
        for few in ["0", "1", "1023"] {
            assert!(byte_limit(few).is_err(), "{few}");
        }
        assert!(nonzero("0").unwrap_err().contains("greater than zero"));
        assert!(byte_limit("1G").unwrap_err().contains("without a unit"));
    }

    #[test]
    fn texts_for_others_are_short() {
        assert_eq!(remark("restoring").as_deref(), Ok("restoring"));
        assert!(remark("").is_err() && remark(&"a".repeat(1025)).is_err());
    }

    #[test]
    fn a_leading_slash_makes_no_difference() {
        assert_eq!(lock("demo/hello").unwrap(), lock("/demo/hello").unwrap());
        assert_eq!(folder("/").unwrap(), ZnodePath::root());
    }

    #[test]
    fn what_is_no_name_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "it is empty"),
            ("/", "cannot be a lock"),
            ("a//b", "empty segment"),
            ("a/", "ends with"),
            ("../x", "relative"),
            ("a/./b", "relative"),
            ("a\0b", "NUL"),
            ("zookeeper/quota", "reserved for the server"),
        ] {
            let error = lock(text).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("/locks/orders"), "{text:?}: {error}");
        }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, ms) in [("10s", 10_000), ("500ms", 500), ("2", 2_000), ("0.5", 500), ("0", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        for text in ["", "soon", "-1", "10 parsecs", "NaN", "inf", "1e30", "9999y"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
