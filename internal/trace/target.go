package trace

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// A Target is a collector of OpenTelemetry for one signal, in OTLP over HTTP with JSON.
type Target struct {
	url      string
	headers  map[string]string
	resource []attribute
	client   http.Client
}

// TargetFromEnv returns the collector that OpenTelemetry's environment variables define
// for a signal, traces or metrics, or nil if they define none. It reads
// OTEL_EXPORTER_OTLP_ENDPOINT, that of the signal, such as
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, the HEADERS and PROTOCOL variables of both,
// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES. OTEL_SDK_DISABLED=true, and
// OTEL_TRACES_EXPORTER=none of the signal, disable it.
func TargetFromEnv(getenv func(string) string, signal, version string) (*Target, error) {
	own := strings.ToUpper(signal)
	of := func(name string) string {
		if v := getenv("OTEL_EXPORTER_OTLP_" + own + "_" + name); v != "" {
			return v
		}
		return getenv("OTEL_EXPORTER_OTLP_" + name)
	}
	endpoint := of("ENDPOINT")
	if endpoint == "" || strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_"+own+"_EXPORTER") == "none" {
		return nil, nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %q is not a URL like http://127.0.0.1:4318", endpoint)
	}
	if p := of("PROTOCOL"); p == "grpc" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: grpc is not supported; use http/json and the collector's HTTP port, usually 4318")
	}
	if getenv("OTEL_EXPORTER_OTLP_"+own+"_ENDPOINT") == "" {
		u = u.JoinPath("v1", signal)
	}
	headers, err := pairs(of("HEADERS"))
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: %w", err)
	}
	attrs, err := pairs(getenv("OTEL_RESOURCE_ATTRIBUTES"))
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	if name := getenv("OTEL_SERVICE_NAME"); name != "" {
		attrs["service.name"] = name
	} else if attrs["service.name"] == "" {
		attrs["service.name"] = "glovebox"
	}
	attrs["service.version"] = version
	return &Target{url: u.String(), headers: headers, resource: attributes(attrs)}, nil
}

// pairs reads a list such as a=1,b=2, with values in percent-encoding.
func pairs(text string) (map[string]string, error) {
	m := map[string]string{}
	for item := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(item) == "" {
			continue
		}
		name, value, ok := strings.Cut(item, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil {
			return nil, fmt.Errorf("must be a list like name=value,name=value") // without the text, which may be secret
		}
		m[strings.TrimSpace(name)] = value
	}
	return m, nil
}

type attribute struct {
	Key   string `json:"key"`
	Value struct {
		String string `json:"stringValue"`
	} `json:"value"`
}

func attributes(m map[string]string) []attribute {
	list := make([]attribute, 0, len(m))
	for k, v := range m {
		a := attribute{Key: k}
		a.Value.String = v
		list = append(list, a)
	}
	return list
}

// Resource returns the resource of a request's body.
func (t *Target) Resource() any { return map[string]any{"attributes": t.resource} }

// Attributes returns attributes in the form of OTLP's JSON.
func Attributes(m map[string]string) any { return attributes(m) }

// Post sends a request's body.
func (t *Target) Post(body []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), exportTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for k, v := range t.headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := t.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)); err != nil {
		return err
	}
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("the collector answered %s", res.Status)
	}
	return nil
}
