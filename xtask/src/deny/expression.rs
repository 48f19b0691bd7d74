//! Licences as packages name them: SPDX expressions, and the slash of earlier times.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

/// Whether one may choose licences of an expression that are all allowed.
///
/// # Errors
/// If it is no expression.
pub(super) fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> Result<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { rest: &words, allowed };
    let result = parser.any_of()?;
    match parser.rest {
        [] => Ok(result),
        [word, ..] => bail!("{word:?} is in the way"),
    }
}

struct Parser<'a> {
    rest: &'a [&'a str],
    allowed: &'a BTreeSet<String>,
}

impl<'a> Parser<'a> {
    fn any_of(&mut self) -> Result<bool> {
        let mut result = self.all_of()?;
        while self.take("OR") {
            result |= self.all_of()?;
        }
        Ok(result)
    }

    fn all_of(&mut self) -> Result<bool> {
        let mut result = self.one()?;
        while self.take("AND") {
            result &= self.one()?;
        }
        Ok(result)
    }

    /// One licence, with its exception if there is one, or an expression in parentheses.
    fn one(&mut self) -> Result<bool> {
        if self.take("(") {
            let result = self.any_of()?;
            if !self.take(")") {
                bail!("a parenthesis is open");
            }
            return Ok(result);
        }
        let mut license = self.word()?.to_owned();
        if self.take("WITH") {
            license = format!("{license} WITH {}", self.word()?);
        }
        Ok(self.allowed.contains(&license))
    }

    fn word(&mut self) -> Result<&'a str> {
        match self.rest {
            [word, rest @ ..] if !["OR", "AND", "WITH", "(", ")"].contains(word) => {
                self.rest = rest;
                Ok(word)
            }
            _ => bail!("a licence is missing"),
        }
    }

    fn take(&mut self, wanted: &str) -> bool {
        match self.rest {
            [word, rest @ ..] if *word == wanted => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }
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
