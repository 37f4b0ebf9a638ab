//! Tributary's own configuration objects: types, schemas and validation.
