//! Text, tables and numbers as the page has them.

/// A page that is written from top to bottom.
#[derive(Default)]
pub(super) struct Markdown(String);

/// A column of numbers: its head, and what it shows of a line.
pub(super) type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> Option<f64>);

impl Markdown {
    /// A heading or a line that the next one does not belong to.
    pub(super) fn paragraph(&mut self, text: &str) {
        self.0.push_str(text);
        self.0.push_str("\n\n");
    }

    pub(super) fn table(&mut self, head: &[&str], lines: &[Vec<String>]) {
        let mut line = |cells: &str| self.0.push_str(&format!("| {cells} |\n"));
        line(&head.join(" | "));
        // Names to the left, numbers to the right.
        let align = |(column, _): (usize, &&str)| if column < 2 { "---" } else { "---:" };
        line(&head.iter().enumerate().map(align).collect::<Vec<_>>().join(" | "));
        for cells in lines {
            line(&cells.join(" | "));
        }
        self.0.push('\n');
    }

    /// A table of numbers: names to the left, and a column for each description.
    pub(super) fn numbers<T>(
        &mut self,
        names: &[&str],
        lines: &[(Vec<String>, T)],
        columns: &[Column<'_, T>],
    ) {
        let head: Vec<&str> =
            names.iter().copied().chain(columns.iter().map(|column| column.0)).collect();
        let cells = |(names, line): &(Vec<String>, T)| {
            let numbers = columns.iter().map(|(_, of)| of(line).map_or_else(String::new, short));
            names.iter().cloned().chain(numbers).collect()
        };
        self.table(&head, &lines.iter().map(cells).collect::<Vec<_>>());
    }

    pub(super) fn finish(self) -> String {
        self.0.trim_end().to_owned() + "\n"
    }
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
