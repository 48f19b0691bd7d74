//! What the templates of the page and of the charts have in common.

use anyhow::Result;
use minijinja::Environment;
use minijinja::syntax::SyntaxConfig;

/// Lines with nothing but a block leave no line behind; a missing number is empty.
pub(super) fn environment() -> Result<Environment<'static>> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_filter("short", |number: Option<f64>| number.map(short).unwrap_or_default());
    Ok(environment)
}

/// Three digits that count; thousands in groups.
pub(super) fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let digits = value.abs().log10().floor() as i32;
    if digits >= 3 {
        let unit = 10_f64.powi(digits - 2);
        return grouped((value / unit).round() * unit);
    }
    let decimals = usize::try_from(2 - digits).unwrap_or(0).min(6);
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

pub(super) fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count() {
        let shown = [1_234_567.0, 999.6, 100.0, 12.34, 1.0, 0.1234, 0.05, 0.0].map(short);
        assert_eq!(shown, ["1,230,000", "1000", "100", "12.3", "1", "0.123", "0.05", "0"]);
    }
}
