//! `--usage`: what callers have used of models, by the ledger.

use std::array::from_fn;
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use super::folder::Folder;
use super::ledger::lines;
use crate::config::{DEFAULT_MODEL, Prices};
use crate::encoding::percent::percent_decode;
use crate::os::files::open_plain;
use crate::text::number;

/// The columns of a report. A run counts with the model of its first step.
const COLUMNS: &str = "caller model runs steps input_tokens output_tokens estimated_tokens cost";

/// What was used: the numbers of runs, steps, and tokens.
type Sums = [u64; 5];

/// What was used, by caller and model, since `from`, a month or a day, or `in_it` alone: the names of the columns, and the
/// rows; with prices also the cost, which is empty where there is no price. The last row has the sums. Where this user may,
/// runs whose process has died get their lines first.
///
/// # Errors
/// The folder, or a ledger in it, cannot be read.
pub(crate) fn usage(
    folder: &Path,
    (from, in_it): (&str, bool),
    prices: Option<&Prices>,
) -> io::Result<Vec<Vec<String>>> {
    let (mut sums, mut seen) = (BTreeMap::<_, Sums>::new(), HashSet::new());
    let entries = fs::read_dir(folder)?;
    if let Ok(folder) = Folder::open(folder) {
        let ids = folder.names()?.into_keys();
        ids.for_each(|id| drop(folder.load(id)));
    }
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let month = name.and_then(|name| name.strip_prefix("usage-")?.strip_suffix(".tsv"));
        if month.is_none_or(|month| month < &from[..7]) {
            continue;
        }
        lines(open_plain(&path, OpenOptions::new().read(true))?, |line| {
            let is_meant = line.time >= from && (!in_it || line.time.starts_with(from));
            if is_meant && seen.insert(line.step) {
                let [input, output] = line.tokens;
                let estimated = u64::from(line.is_estimated) * (input + output);
                let more = [u64::from(line.step.1 == 1), 1, input, output, estimated];
                let names = [line.caller, line.model].map(str::to_owned);
                let sums = sums.entry(names).or_default();
                *sums = from_fn(|at| sums[at].saturating_add(more[at]));
            }
        });
    }
    let mut rows = vec![Vec::from_iter(COLUMNS.split(' ').map(str::to_owned))];
    rows[0].truncate(if prices.is_some() { 8 } else { 7 });
    let (mut all, mut costs) = (Sums::default(), 0.);
    let mut row = |names: [String; 2], sums: Sums, cost: Option<f64>| {
        let cost = prices.map(|_| cost.map_or(String::new(), number));
        rows.push(
            names
                .into_iter()
                .chain(sums.map(|sum| sum.to_string()))
                .chain(cost)
                .collect(),
        );
    };
    for (names, sums) in sums {
        let cost = prices.and_then(|prices| cost(prices, &names[1], &sums));
        all = from_fn(|at| all[at].saturating_add(sums[at]));
        costs += cost.unwrap_or(0.);
        row(names, sums, cost);
    }
    row(["all".to_owned(), String::new()], all, Some(rounded(costs)));
    Ok(rows)
}

/// What tokens of a model cost; `None` without a price. A model without a row costs what `default` does.
fn cost(prices: &Prices, model: &str, [_, _, input, output, _]: &Sums) -> Option<f64> {
    let row = prices.get(&percent_decode(model)?.to_ascii_lowercase());
    let price = row.or_else(|| prices.get(DEFAULT_MODEL))?;
    // Prices are for a million tokens.
    Some(rounded(
        (*input as f64 * price[0] + *output as f64 * price[1]) / 1e6,
    ))
}

fn rounded(cost: f64) -> f64 {
    (cost * 1e6).round() / 1e6
}
