{{/*
Names. 40 characters, so that all that is added to them fits (KubeRay allows 53 for FULLNAME-ray, a label 63). What is cut gets a hash of the
whole: two long names that begin alike stay two names.
*/}}
{{- define "specsweep.cut" -}}
{{- if gt (len .) 40 -}}
{{- printf "%s-%s" (. | trunc 31 | trimSuffix "-") (sha256sum . | trunc 8) -}}
{{- else -}}
{{- . | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "specsweep.name" -}}
{{- include "specsweep.cut" (default .Chart.Name .Values.nameOverride) -}}
{{- end -}}

{{- define "specsweep.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- include "specsweep.cut" .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- include "specsweep.cut" .Release.Name -}}
{{- else -}}
{{- include "specsweep.cut" (printf "%s-%s" .Release.Name $name) -}}
{{- end -}}
{{- end -}}

{{- define "specsweep.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "specsweep.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Claims by name: one that is there, or the chart's own. */}}
{{- define "specsweep.resultsClaim" -}}
{{- default (printf "%s-results" (include "specsweep.fullname" .)) .Values.results.existingClaim -}}
{{- end -}}

{{- define "specsweep.weightsClaim" -}}
{{- default (printf "%s-weights" (include "specsweep.fullname" .)) .Values.weights.existingClaim -}}
{{- end -}}

{{- define "specsweep.mlflowClaim" -}}
{{- default (printf "%s-mlflow" (include "specsweep.fullname" .)) .Values.mlflow.persistence.existingClaim -}}
{{- end -}}

{{- define "specsweep.mlflowUri" -}}
{{- if .Values.mlflow.enabled -}}
{{- printf "http://%s-mlflow:%v" (include "specsweep.fullname" .) .Values.mlflow.service.port -}}
{{- else -}}
{{- .Values.mlflow.externalUri -}}
{{- end -}}
{{- end -}}

{{- define "specsweep.rayAddress" -}}
{{- printf "%s-ray-head-svc:6379" (include "specsweep.fullname" .) -}}
{{- end -}}

{{/* Labels of an object: (dict "root" $ "component" "mlflow"). Sweeps label their own objects managed-by=specsweep; these are Helm's. */}}
{{- define "specsweep.labels" -}}
{{ include "specsweep.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: specsweep
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "specsweep.selectorLabels" -}}
app.kubernetes.io/name: {{ include "specsweep.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* "" where no repository is given. */}}
{{- define "specsweep.image" -}}
{{- $image := .Values.image -}}
{{- if $image.repository -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the pods of MLflow and Ray share. */}}
{{- define "specsweep.podSpec" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
A pod template with the user's merged over it: (dict "base" text "over" dict). What `kubectl patch` does with a strategic merge: maps are
merged; of containers, those of one name are merged; volumes, variables, mounts and ports take the place of those with their key; other
lists are replaced.
*/}}
{{- define "specsweep.podTemplate" -}}
{{- $base := fromYaml .base -}}
{{- $over := deepCopy .over -}}
{{- $spec := default dict $over.spec -}}
{{- range $field := list "containers" "initContainers" -}}
{{- if hasKey $spec $field -}}
{{- $merged := list -}}
{{- range $new := get $spec $field -}}
{{- range $old := default list (get $base.spec $field) -}}
{{- if eq $old.name $new.name -}}
{{- range $inner, $key := dict "env" "name" "volumeMounts" "mountPath" "ports" "containerPort" -}}
{{- if hasKey $new $inner -}}
{{- $_ := set $new $inner (include "specsweep.byKey" (dict "base" (get $old $inner) "over" (get $new $inner) "key" $key) | fromYamlArray) -}}
{{- end -}}
{{- end -}}
{{- $new = mustMergeOverwrite (deepCopy $old) $new -}}
{{- end -}}
{{- end -}}
{{- $merged = append $merged $new -}}
{{- end -}}
{{- $_ := set $spec $field (include "specsweep.byKey" (dict "base" (get $base.spec $field) "over" $merged "key" "name") | fromYamlArray) -}}
{{- end -}}
{{- end -}}
{{- if hasKey $spec "volumes" -}}
{{- $_ := set $spec "volumes" (include "specsweep.byKey" (dict "base" $base.spec.volumes "over" $spec.volumes "key" "name") | fromYamlArray) -}}
{{- end -}}
{{- toYaml (mustMergeOverwrite $base $over) -}}
{{- end -}}

{{/* The items of "base", those of "over" in the place of those with the same "key", then the others. */}}
{{- define "specsweep.byKey" -}}
{{- $key := .key -}}
{{- $over := .over -}}
{{- $items := list -}}
{{- $taken := list -}}
{{- range $old := default list .base -}}
{{- $item := $old -}}
{{- range $new := $over -}}
{{- if eq (toString (get $new $key)) (toString (get $old $key)) -}}
{{- $item = $new -}}
{{- $taken = append $taken (toString (get $new $key)) -}}
{{- end -}}
{{- end -}}
{{- $items = append $items $item -}}
{{- end -}}
{{- range $new := $over -}}
{{- if not (has (toString (get $new $key)) $taken) -}}
{{- $items = append $items $new -}}
{{- end -}}
{{- end -}}
{{- toYaml $items -}}
{{- end -}}

{{/* A PersistentVolumeClaim: (dict "root" $ "name" … "component" … "claim" values). */}}
{{- define "specsweep.claim" -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "specsweep.labels" . | nindent 4 }}
  {{- $annotations := deepCopy .claim.annotations }}
  {{- if .claim.keep }}
  {{- $_ := set $annotations "helm.sh/resource-policy" "keep" }}
  {{- end }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  accessModes:
    {{- toYaml .claim.accessModes | nindent 4 }}
  {{- with .claim.storageClass }}
  storageClassName: {{ . | quote }}
  {{- end }}
  resources:
    requests:
      storage: {{ .claim.size | quote }}
{{- end -}}
