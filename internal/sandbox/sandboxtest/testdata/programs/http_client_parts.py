from http import HTTPStatus; from http.cookies import SimpleCookie
print(HTTPStatus(404).phrase, HTTPStatus.OK.value, HTTPStatus.NOT_FOUND.is_client_error if hasattr(HTTPStatus.OK, "is_client_error") else True)
c = SimpleCookie("a=1; b=two"); c["c"] = "x y"; c["c"]["path"] = "/"; print(c["b"].value, c["c"].OutputString())
import mimetypes; print(mimetypes.guess_type("a.html")[0], mimetypes.guess_type("x.png")[0])
