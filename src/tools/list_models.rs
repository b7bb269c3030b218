//! `fabric_list_models`: the models that Fabric can use.

use std::sync::Arc;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::access::Role;
use crate::fabric::Models;

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

/// The lists are shared with other calls, and may be long.
struct ModelList(Arc<Models>);

impl Serialize for ModelList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_struct("ModelList", 2)?;
        list.serialize_field("all_models", &self.0.models)?;
        list.serialize_field("models_by_vendor", &self.0.vendors)?;
        list.end()
    }
}

fn models(context: &Arc<Context>) -> Result<Outcome, Failure> {
    let models = context.backend.catalog.models(&context.wait())?;
    let rows = models.models.len();
    Ok(Outcome::rows(ModelList(models), rows))
}
