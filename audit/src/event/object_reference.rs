//! The reference to the object of a request.

use std::borrow::Cow;

use tributary_apimachinery::ResourceRequest;

use crate::json;

/// The reference to the object of a request. A field without a value is an empty string.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectReference<'a> {
    /// The plural name of the resource.
    pub resource: Cow<'a, str>,
    /// The namespace of the object.
    pub namespace: Cow<'a, str>,
    /// The name of the object.
    pub name: Cow<'a, str>,
    /// The uid of the object, if the request's body contains a uid.
    pub uid: Cow<'a, str>,
    /// The API group of the resource.
    pub api_group: Cow<'a, str>,
    /// The version of the API group in the request's path.
    pub api_version: Cow<'a, str>,
    /// The resourceVersion of the object, if the request's body contains a resourceVersion.
    pub resource_version: Cow<'a, str>,
    /// The subresource; empty for a request without a subresource.
    pub subresource: Cow<'a, str>,
}

impl<'a> ObjectReference<'a> {
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

    /// Appends the reference as JSON, without empty fields.
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
        // The first field begins with a comma, which is replaced by the opening brace of the object.
        match line.get_mut(begun) {
            Some(comma) => *comma = b'{',
            None => line.push(b'{'),
        }
        line.push(b'}');
    }

    /// Copies the strings of the reference, so that the reference can outlive the request.
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
