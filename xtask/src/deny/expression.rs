//! Licences as packages name them: SPDX expressions, and the slash of earlier times.

use std::collections::BTreeSet;

use anyhow::Result;
use spdx::{Expression, ParseMode};

/// Whether one may choose licences of an expression that are all allowed.
///
/// # Errors
/// If it is no expression, or names what SPDX does not know.
pub(super) fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> Result<bool> {
    let mode =
        ParseMode { allow_slash_as_or_operator: true, allow_deprecated: true, ..ParseMode::STRICT };
    let expression = Expression::parse_mode(expression, mode)?;
    Ok(expression.evaluate(|license| allowed.contains(&license.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(expression: &str) -> Result<bool> {
        let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        is_allowed(expression, &BTreeSet::from(allowed))
    }

    #[test]
    fn one_choice_is_enough_and_all_of_it_is_needed() {
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "MIT AND ISC",
            "(GPL-3.0 OR MIT) AND ISC",
            "GPL-3.0 OR MIT AND ISC",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(judge(good).unwrap(), "{good}");
        }
        for bad in [
            "GPL-3.0",
            "Apache-2.0",
            "MIT AND GPL-3.0",
            "MIT WITH LLVM-exception",
            "MIT AND (GPL-3.0 OR LGPL-3.0)",
            "MIT AND GPL-3.0 OR GPL-2.0",
        ] {
            assert!(!judge(bad).unwrap(), "{bad}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for wrong in ["", "MIT OR", "AND MIT", "(MIT", "MIT)", "MIT ISC", "MIT WITH"] {
            assert!(judge(wrong).is_err(), "{wrong}");
        }
    }
}
