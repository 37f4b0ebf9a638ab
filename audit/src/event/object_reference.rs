//! The object that a request is about.

use std::borrow::Cow;

use tributary_apimachinery::ResourceRequest;

use crate::json;

/// The object that a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectReference<'a> {
    /// The resource.
    pub resource: Cow<'a, str>,
    /// Its namespace.
    pub namespace: Cow<'a, str>,
    /// Its name.
    pub name: Cow<'a, str>,
    /// Its uid, where the body of the request has it.
    pub uid: Cow<'a, str>,
    /// The API group.
    pub api_group: Cow<'a, str>,
    /// The version of the group.
    pub api_version: Cow<'a, str>,
    /// The version of the object, where the body of the request has it.
    pub resource_version: Cow<'a, str>,
    /// The subresource.
    pub subresource: Cow<'a, str>,
}

impl<'a> ObjectReference<'a> {
    /// That of a request.
    pub(super) fn from_request(request: &'a ResourceRequest) -> Self {
        Self {
            resource: Cow::Borrowed(&request.resource.resource),
            namespace: request.authorization_namespace().into(),
            name: request.authorization_name().into(),
            api_group: Cow::Borrowed(&request.resource.group),
            api_version: Cow::Borrowed(&request.resource.version),
            subresource: request.subresource.as_deref().unwrap_or_default().into(),
            ..Self::default()
        }
    }

    /// Adds it as JSON, without what is empty.
    pub(super) fn write_to(&self, line: &mut Vec<u8>) {
        let begun = line.len();
        for (key, value) in [
            (r#","resource":"#, &self.resource),
            (r#","namespace":"#, &self.namespace),
            (r#","name":"#, &self.name),
            (r#","uid":"#, &self.uid),
            (r#","apiGroup":"#, &self.api_group),
            (r#","apiVersion":"#, &self.api_version),
            (r#","resourceVersion":"#, &self.resource_version),
            (r#","subresource":"#, &self.subresource),
        ] {
            if !value.is_empty() {
                json::field(line, key, value);
            }
        }
        // In place of the first field's comma.
        match line.get_mut(begun) {
            Some(comma) => *comma = b'{',
            None => line.push(b'{'),
        }
        line.push(b'}');
    }

    /// The same, once the request is gone.
    pub(super) fn into_owned(self) -> ObjectReference<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        ObjectReference {
            resource: owned(self.resource),
            namespace: owned(self.namespace),
            name: owned(self.name),
            uid: owned(self.uid),
            api_group: owned(self.api_group),
            api_version: owned(self.api_version),
            resource_version: owned(self.resource_version),
            subresource: owned(self.subresource),
        }
    }
}
