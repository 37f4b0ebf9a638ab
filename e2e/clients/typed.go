package main

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// step is the outcome of one call: its code is 0 for success, else that of the Status.
type step struct {
	Step            string `json:"step"`
	Code            int32  `json:"code"`
	Reason          string `json:"reason,omitempty"`
	Message         string `json:"message,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Value           string `json:"value,omitempty"`
}

func report(name string, object metav1.Object, value string, err error) {
	outcome := step{Step: name, Value: value}
	var status apierrors.APIStatus
	switch {
	case err == nil && object != nil:
		outcome.ResourceVersion = object.GetResourceVersion()
	case errors.As(err, &status):
		outcome.Code = status.Status().Code
		outcome.Reason, outcome.Message = string(status.Status().Reason), status.Status().Message
	case err != nil:
		outcome.Code, outcome.Message = -1, err.Error()
	}
	say(outcome)
}

// runTyped makes the same calls against any server; the tests compare the outcomes. Objects are created in
// given.cluster by annotation where that is set.
func runTyped(ctx context.Context, config *rest.Config, given settings) error {
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := configMapSteps(ctx, clientset, given); err != nil {
		return err
	}
	if err := deploymentSteps(ctx, clientset, given); err != nil {
		return err
	}
	return podSteps(ctx, clientset, given)
}

func objectMeta(name string, given settings) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Name: name, Namespace: given.namespace, Labels: map[string]string{"client": "typed"}}
	if given.cluster != "" {
		meta.Annotations = map[string]string{"tributary.dev/cluster": given.cluster}
	}
	return meta
}

func configMapSteps(ctx context.Context, clientset *kubernetes.Clientset, given settings) error {
	maps := clientset.CoreV1().ConfigMaps(given.namespace)
	first, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: objectMeta("typed", given), Data: map[string]string{"step": "1"}}, metav1.CreateOptions{})
	report("create", first, "", err)
	if err != nil {
		return nil
	}
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: objectMeta("typed", given)}, metav1.CreateOptions{})
	report("create-again", nil, "", err)

	changed := first.DeepCopy()
	changed.Data["step"] = "2"
	second, err := maps.Update(ctx, changed, metav1.UpdateOptions{})
	report("update-fresh", second, second.Data["step"], err)

	stale := first.DeepCopy()
	stale.Data["step"] = "3"
	_, err = maps.Update(ctx, stale, metav1.UpdateOptions{})
	report("update-stale", nil, "", err)

	unconditional := first.DeepCopy()
	unconditional.ResourceVersion = ""
	unconditional.Data["step"] = "4"
	third, err := maps.Update(ctx, unconditional, metav1.UpdateOptions{})
	report("update-unconditional", third, third.Data["step"], err)

	merged, err := maps.Patch(ctx, "typed", types.MergePatchType, []byte(`{"data":{"step":"5"}}`), metav1.PatchOptions{})
	report("merge-patch", merged, merged.Data["step"], err)
	strategic, err := maps.Patch(ctx, "typed", types.StrategicMergePatchType, []byte(`{"data":{"step":"6"}}`), metav1.PatchOptions{})
	report("strategic-patch", strategic, strategic.Data["step"], err)
	tested, err := maps.Patch(ctx, "typed", types.JSONPatchType, []byte(`[{"op":"test","path":"/metadata/resourceVersion","value":"`+strategic.ResourceVersion+`"},{"op":"replace","path":"/data/step","value":"7"}]`), metav1.PatchOptions{})
	report("json-patch-test", tested, tested.Data["step"], err)
	_, err = maps.Patch(ctx, "typed", types.JSONPatchType, []byte(`[{"op":"test","path":"/metadata/resourceVersion","value":"`+first.ResourceVersion+`"},{"op":"replace","path":"/data/step","value":"8"}]`), metav1.PatchOptions{})
	report("json-patch-test-stale", nil, "", err)
	_, err = maps.Patch(ctx, "typed", types.MergePatchType, []byte(`{"metadata":{"resourceVersion":"`+first.ResourceVersion+`"},"data":{"step":"9"}}`), metav1.PatchOptions{})
	report("merge-patch-stale", nil, "", err)

	got, err := maps.Get(ctx, "typed", metav1.GetOptions{})
	report("get", got, got.Data["step"], err)
	if err == nil && got.ResourceVersion != tested.ResourceVersion {
		report("get-version-equals-the-write's", nil, "", errors.New(got.ResourceVersion+" is not "+tested.ResourceVersion))
	}

	err = maps.Delete(ctx, "typed", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &first.ResourceVersion}})
	report("delete-stale", nil, "", err)
	other := types.UID("00000000-0000-0000-0000-000000000000")
	err = maps.Delete(ctx, "typed", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	report("delete-other-uid", nil, "", err)
	err = maps.Delete(ctx, "typed", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &got.ResourceVersion, UID: &got.UID}})
	report("delete-fresh", nil, "", err)
	_, err = maps.Get(ctx, "typed", metav1.GetOptions{})
	report("get-deleted", nil, "", err)
	return nil
}

func deploymentSteps(ctx context.Context, clientset *kubernetes.Clientset, given settings) error {
	deployments := clientset.AppsV1().Deployments(given.namespace)
	labels := map[string]string{"app": "typed"}
	none := int32(0)
	created, err := deployments.Create(ctx, &appsv1.Deployment{
		ObjectMeta: objectMeta("typed", given),
		Spec: appsv1.DeploymentSpec{
			Replicas: &none,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.test/main:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	report("deployment-create", created, "", err)
	if err != nil {
		return nil
	}
	stale, err := deployments.GetScale(ctx, "typed", metav1.GetOptions{})
	report("scale-get", stale, "", err)
	fresh, err := deployments.GetScale(ctx, "typed", metav1.GetOptions{})
	if err != nil {
		report("scale-get", nil, "", err)
		return nil
	}
	fresh.Spec.Replicas = 0
	// Something changes between, so that the version read first is stale.
	_, err = deployments.Patch(ctx, "typed", types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":"yes"}}}`), metav1.PatchOptions{})
	report("deployment-patch", nil, "", err)
	stale.Spec.Replicas = 0
	_, err = deployments.UpdateScale(ctx, "typed", stale, metav1.UpdateOptions{})
	report("scale-update-stale", nil, "", err)
	unconditional := fresh.DeepCopy()
	unconditional.ResourceVersion = ""
	scaled, err := deployments.UpdateScale(ctx, "typed", unconditional, metav1.UpdateOptions{})
	report("scale-update", scaled, "", err)
	err = deployments.Delete(ctx, "typed", metav1.DeleteOptions{})
	report("deployment-delete", nil, "", err)
	return nil
}

func podSteps(ctx context.Context, clientset *kubernetes.Clientset, given settings) error {
	pods := clientset.CoreV1().Pods(given.namespace)
	created, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: objectMeta("typed", given),
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.test/main:1"}}},
	}, metav1.CreateOptions{})
	report("pod-create", created, "", err)
	if err != nil {
		return nil
	}
	created.Status.Phase = corev1.PodPending
	created.Status.Message = "written by a test"
	status, err := pods.UpdateStatus(ctx, created, metav1.UpdateOptions{})
	report("status-update", status, status.Status.Message, err)
	other := types.UID("00000000-0000-0000-0000-000000000000")
	err = pods.EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: "typed", Namespace: given.namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}},
	})
	report("evict-other-uid", nil, "", err)
	err = pods.EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: "typed", Namespace: given.namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &created.UID}},
	})
	report("evict", nil, "", err)
	return nil
}
