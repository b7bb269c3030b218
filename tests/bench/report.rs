//! Rows of the table.

/// Latencies in microseconds, and the total time in seconds.
#[derive(Default)]
pub(crate) struct Samples {
    pub(crate) micros: Vec<f64>,
    pub(crate) seconds: f64,
}

impl Samples {
    /// The value below which the fraction `part` (0 to 1) of the samples lies.
    pub(crate) fn percentile(&self, part: f64) -> f64 {
        let mut sorted = self.micros.clone();
        sorted.sort_by(f64::total_cmp);
        let index = (sorted.len().saturating_sub(1) as f64 * part) as usize;
        sorted.get(index).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn p50(&self) -> f64 {
        self.percentile(0.5)
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.micros.len() as f64 / self.seconds
    }
}

/// A line of the table; `None` where a column does not apply.
#[derive(Default)]
pub(crate) struct Row {
    name: String,
    p50: Option<f64>,
    p99: Option<f64>,
    per_second: Option<f64>,
    megabytes: Option<f64>,
    ratio: Option<f64>,
    note: String,
}

impl Row {
    pub(crate) fn new(name: impl Into<String>) -> Row {
        Row {
            name: name.into(),
            ..Row::default()
        }
    }

    /// p50 and p99 in microseconds.
    pub(crate) fn latency(mut self, samples: &Samples) -> Row {
        self.p50 = Some(samples.p50());
        self.p99 = Some(samples.percentile(0.99));
        self
    }

    /// One duration, in microseconds.
    pub(crate) fn micros(mut self, micros: f64) -> Row {
        self.p50 = Some(micros);
        self
    }

    pub(crate) fn rate(mut self, per_second: f64) -> Row {
        self.per_second = Some(per_second);
        self
    }

    pub(crate) fn megabytes(mut self, megabytes: f64) -> Row {
        self.megabytes = Some(megabytes);
        self
    }

    /// Our cost as a multiple of the baseline's; 1 means no overhead.
    pub(crate) fn times_floor(mut self, ours: f64, floor: f64) -> Row {
        self.ratio = Some(ours / floor);
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Row {
        self.note = note.into();
        self
    }

    pub(crate) fn line(&self) -> String {
        let cell = |value: Option<f64>, digits: usize| match value {
            Some(value) if value.is_finite() => format!("{value:.digits$}"),
            _ => String::new(),
        };
        format!(
            "{:46}{:>11}{:>11}{:>10}{:>8}{:>9}  {}",
            self.name,
            cell(self.p50, 1),
            cell(self.p99, 1),
            cell(self.per_second, 0),
            cell(self.megabytes, 2),
            cell(self.ratio, 2),
            self.note
        )
    }
}

/// The first line of the table.
pub(crate) fn header() -> String {
    format!(
        "{:46}{:>11}{:>11}{:>10}{:>8}{:>9}  note",
        "", "p50 us", "p99 us", "per s", "MB", "x floor"
    )
}
