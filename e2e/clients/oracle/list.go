package oracle

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
)

// everything selects all objects.
func everything() fields.Selector { return fields.Everything() }

// contents are a list's objects and its version.
func contents(list runtime.Object) ([]metav1.Object, string, error) {
	of, err := meta.ListAccessor(list)
	if err != nil {
		return nil, "", err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, "", err
	}
	objects := make([]metav1.Object, 0, len(items))
	for _, item := range items {
		object, err := meta.Accessor(item)
		if err != nil {
			return nil, "", err
		}
		objects = append(objects, object)
	}
	return objects, of.GetResourceVersion(), nil
}
