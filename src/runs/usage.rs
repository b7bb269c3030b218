//! `--usage`: what callers have used of models, by the ledger.

use std::array::from_fn;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, OpenOptions};
use std::path::Path;

use serde_json::Value;

use super::folder::{Folder, is_gone};
use super::ledger::lines;
use crate::config::{DEFAULT_MODEL, Prices};
use crate::encoding::percent::percent_decode;
use crate::os::files::open_plain;
use crate::text::{counted, unusable};

/// The members of a row of a report. A run counts with the model of its first step.
pub(crate) const COLUMNS: [&str; 8] = [
    "caller",
    "model",
    "runs",
    "steps",
    "input_tokens",
    "output_tokens",
    "estimated_tokens",
    "cost",
];

/// What was used: the numbers of runs, steps, and tokens.
type Sums = [u64; 5];

/// What each caller used of each model since the month or day `from`, or only in that month if `in_it`. Returns objects;
/// the last one has the sums. With prices, they also have the cost where it is known. Runs whose process has
/// died get their lines first; the log says if this user may not do that, how many lines cannot be read, and which models
/// have no price.
///
/// # Errors
/// The folder, or a ledger in it, cannot be read: which, and why.
pub(crate) fn usage(
    folder: &Path,
    (from, in_it): (&str, bool),
    prices: Option<&Prices>,
) -> Result<Vec<Value>, String> {
    let (mut sums, mut seen, mut unread) = (BTreeMap::<_, Sums>::new(), HashSet::new(), 0);
    let failed = |error| unusable("folder", folder, &error);
    let entries = fs::read_dir(folder).map_err(failed)?;
    match Folder::open(folder) {
        Ok(folder) => {
            let names = folder.names().map_err(failed)?;
            let runs = names.into_keys().map(|id| folder.load(id));
            let errors = Vec::from_iter(runs.filter_map(Result::err).filter(|e| !is_gone(e)));
            if let Some(error) = errors.first() {
                let runs = counted(errors.len(), "run");
                log::warn!("{runs} cannot be read ({error}): what they used may be missing here");
            }
        }
        Err(why) => log::warn!("runs of processes that were killed may be missing here: {why}"),
    }
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let month = name.and_then(|name| name.strip_prefix("usage-")?.strip_suffix(".tsv"));
        if month.is_none_or(|month| month < &from[..7] || (in_it && month != from)) {
            continue;
        }
        let file = open_plain(&path, OpenOptions::new().read(true));
        let file = file.map_err(|error| unusable("file", &path, &error))?;
        let (_, more) = lines(file, "", |line| {
            let is_meant = line.time >= from && (!in_it || line.time.starts_with(from));
            if is_meant && seen.insert(line.step) {
                let [input, output] = line.tokens;
                let estimated = u64::from(line.is_estimated) * line.sum();
                let more = [u64::from(line.step.1 == 1), 1, input, output, estimated];
                let names = [line.caller, line.model].map(str::to_owned);
                let sums = sums.entry(names).or_default();
                *sums = from_fn(|at| sums[at].saturating_add(more[at]));
            }
        });
        unread += more;
    }
    if seen.is_empty() {
        log::warn!(
            "the ledger in {} has no line for that time",
            folder.display()
        );
    }
    if unread > 0 {
        let lines = counted(unread, "line");
        log::warn!("{lines} of the ledger cannot be read: what they record is missing here");
    }
    let (mut all, mut costs, mut rows) = (Sums::default(), 0., Vec::new());
    let mut unpriced = BTreeSet::new();
    for ([caller, model], sums) in sums {
        let cost = prices.and_then(|prices| cost(prices, &model, &sums));
        if cost.is_none() {
            unpriced.insert(model.clone());
        }
        all = from_fn(|at| all[at].saturating_add(sums[at]));
        costs += cost.unwrap_or(0.);
        rows.push(row([&caller, &model], sums, cost));
    }
    if prices.is_some() && !unpriced.is_empty() {
        let models = Vec::from_iter(unpriced).join(", ");
        log::warn!("there is no price for {models}: their cost is missing here");
    }
    rows.push(row(["all", ""], all, prices.map(|_| rounded(costs))));
    Ok(rows)
}

fn row(names: [&str; 2], sums: Sums, cost: Option<f64>) -> Value {
    let (names, sums) = (names.map(Value::from), sums.map(Value::from));
    let cells = names.into_iter().chain(sums).chain(cost.map(Value::from));
    let members = COLUMNS.into_iter().map(str::to_owned).zip(cells);
    Value::Object(members.collect())
}

/// What tokens of a model cost; `None` without a price. A model without a row costs what `default` does.
fn cost(prices: &Prices, model: &str, [_, _, input, output, _]: &Sums) -> Option<f64> {
    let model = percent_decode(model)?.to_ascii_lowercase();
    // Fabric takes "vendor/model" for a model, too.
    let named = || prices.get(model.split_once('/')?.1);
    let price = prices.get(&model).or_else(named);
    let price = price.or_else(|| prices.get(DEFAULT_MODEL))?;
    let of_a_million = *input as f64 * price[0] + *output as f64 * price[1];
    Some(rounded(of_a_million / 1e6))
}

fn rounded(cost: f64) -> f64 {
    (cost * 1e6).round() / 1e6
}
