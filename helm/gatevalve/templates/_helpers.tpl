{{/* Labels of every object; the argument is a dict of `root` and `component`. */}}
{{- define "gatevalve.labels" -}}
{{ include "gatevalve.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: gatevalve
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "gatevalve.selector" -}}
app.kubernetes.io/name: gatevalve
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* An image; the argument is a dict of `root` and `part`. */}}
{{- define "gatevalve.image" -}}
{{- index .root.Values.images .part | default (printf "gatevalve/%s:%s" .part .root.Chart.AppVersion) -}}
{{- end }}

{{/* The claim of an area; the argument is a dict of `root` and `area`. */}}
{{- define "gatevalve.claim" -}}
{{- (index .root.Values.claims .area).existingClaim | default (printf "gatevalve-%s" .area) -}}
{{- end }}

{{/* Pod Security "restricted". */}}
{{- define "gatevalve.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ int64 .Values.runAsUser }}
runAsGroup: {{ int64 .Values.runAsUser }}
fsGroup: {{ int64 .Values.runAsUser }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "gatevalve.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/*
The signing key as a dict of `key` (empty for a Secret of your own) and `crt`, stored in .Values.made at the first use: several objects
hold it or its digest, and every call would make another key. A key that exists is read back, so that upgrades keep it.
*/}}
{{- define "gatevalve.makeSigning" -}}
{{- if not (hasKey .Values "made") -}}
{{- $own := .Values.signing.existingSecret -}}
{{- $name := $own | default "gatevalve-signing" -}}
{{- $found := (lookup "v1" "Secret" .Release.Namespace $name).data | default dict -}}
{{- $made := dict "key" "" "crt" "" -}}
{{- if $found -}}
{{- range $file := list "tls.key" "tls.crt" -}}
{{- if not (hasKey $found $file) -}}
{{- fail (printf "Secret %s has no %s: restore it, or name a Secret with tls.key and tls.crt in signing.existingSecret" $name $file) -}}
{{- end -}}
{{- end -}}
{{- $made = dict "key" (index $found "tls.key" | b64dec) "crt" (index $found "tls.crt" | b64dec) -}}
{{- if and .Values.signing.certificate (ne .Values.signing.certificate $made.crt) -}}
{{- fail (printf "signing.certificate differs from tls.crt of Secret %s: leave it out, or give exactly the Secret's bytes" $name) -}}
{{- end -}}
{{- else if $own -}}
{{- $made = dict "key" "" "crt" (required (printf "Secret %s cannot be read here: give its tls.crt as signing.certificate" $own) .Values.signing.certificate) -}}
{{- else -}}
{{- $key := genPrivateKey "ed25519" -}}
{{- $pair := genSelfSignedCertWithKey "gatevalve" nil nil 36500 $key -}}
{{- $made = dict "key" $pair.Key "crt" $pair.Cert -}}
{{- end -}}
{{- $_ := set .Values "made" $made -}}
{{- end -}}
{{- end }}

{{/* The name of the signing key: sha256 of the certificate file's bytes. */}}
{{- define "gatevalve.keyDigest" -}}
{{- include "gatevalve.makeSigning" . -}}
sha256:{{ sha256sum .Values.made.crt }}
{{- end }}

{{/* The pool's Service. */}}
{{- define "gatevalve.poolService" -}}
{{- $name := .Values.pool.service.name | default .Values.pool.name -}}
{{- if eq $name "vllm" -}}
{{- fail "a Service named vllm makes Kubernetes inject VLLM_PORT into Pods, which breaks vLLM: choose another pool.name or pool.service.name" -}}
{{- end -}}
{{- $name -}}
{{- end }}
