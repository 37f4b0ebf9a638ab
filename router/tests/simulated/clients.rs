//! Tests of special clients: browsers, informers, and faults known from other projects.

pub(crate) mod browsers;
pub(crate) mod informer;
pub(crate) mod karmada;
pub(crate) mod ocm;
pub(crate) mod precedents;
