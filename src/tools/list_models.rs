//! `fabric_list_models`: the models that Fabric can use.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::access::Role;

use super::{Context, Failure, Outcome, Prepared, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_list_models",
    title: "List models",
    description: "List the models that Fabric can use, by vendor, for model_name and vendor_name. Only needed to choose \
                  another model than Fabric's default.",
    output: include_str!("results/list_models.json"),
    read_only: true,
    role: Role::Read,
    prepare: |_, _| Ok(Prepared::new(models)),
};

#[derive(Serialize)]
struct ModelList {
    all_models: Vec<String>,
    models_by_vendor: BTreeMap<String, Vec<String>>,
}

fn models(context: &Arc<Context>) -> Result<Outcome, Failure> {
    let models = Arc::unwrap_or_clone(context.backend.catalog.models(&context.wait())?);
    let rows = models.models.len();
    Ok(Outcome::rows(
        ModelList {
            all_models: models.models,
            models_by_vendor: models.vendors,
        },
        rows,
    ))
}
