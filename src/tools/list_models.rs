//! `fabric_list_models`: the models that Fabric can use.

use crate::fabric::Error;
use crate::text::letters;

use super::{Arguments, Outcome, Policy, Tool, ToolWork};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_list_models",
    title: "List models",
    description: "List the models that Fabric can use, by vendor. Only needed to choose another than Fabric's default.",
    output: include_str!("results/list_models.json"),
    read_only: true,
    declare,
};

fn declare(arguments: &mut Arguments<'_>, policy: &Policy) -> Result<ToolWork, Error> {
    // "claude 3.5" is meant as "claude-3-5". A long query must not take long.
    let plain = |name: &str| String::from_iter(letters(name).filter(|c| c.is_alphanumeric()));
    let query = arguments.string("query: Part of a name.");
    let words = query.as_deref().unwrap_or_default().split_whitespace();
    let words = Vec::from_iter(words.map(plain).take(16));
    let policy = policy.clone();
    Ok(Box::new(move |context| {
        let found = context.backend.catalog.models(&context.observer())?;
        let mut vendors = found.vendors.clone();
        if vendors.is_empty() {
            vendors.insert("unknown".to_owned(), found.models.clone());
        }
        for (vendor, models) in &mut vendors {
            let of = plain(vendor);
            models.retain(|model| {
                let name = format!("{of} {}", plain(model));
                policy.may_run(model) && words.iter().all(|word| name.contains(word))
            });
        }
        vendors.retain(|_, models| !models.is_empty());
        // An empty list looks as if there were no models.
        let is_missed = vendors.is_empty() && !words.is_empty();
        let why = "No model or vendor has the query in its name. Leave query out for all models.";
        Ok(Outcome::rows(vendors.values().map(Vec::len).sum())
            .charged(context.account())
            .member("models_by_vendor", vendors)
            .warn(is_missed.then(|| why.to_owned())))
    }))
}
